//! The containers that an engine reports.

use std::path::Path;
use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::ContainerSummary;
use bollard::query_parameters::{InspectContainerOptions, ListContainersOptionsBuilder};

/// How long a container list that cannot be parsed is requested again.
const TIMEOUT: Duration = Duration::from_secs(20);

/// One running container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningContainer {
    /// The container's id.
    pub id: String,
    /// The owner in its label.
    pub owner: String,
    /// The process id of its first process on the host.
    pub pid: i32,
}

/// Returns the containers of the engine behind `socket`.
pub async fn running_containers(socket: &Path) -> Vec<RunningContainer> {
    let api = super::connect(socket).await;
    let mut found = Vec::new();
    for listed in listed(&api).await {
        let owner = listed.labels.unwrap_or_default().remove("vivarium.owner").unwrap_or_default();
        let id = listed.id.expect("a container has an id");
        let pid = pid(&api, &id).await;
        found.push(RunningContainer { id, owner, pid });
    }
    found
}

/// Lists the containers. Podman reports a container that is ending as `stopped`, a state that the API does not define, and
/// the list cannot be parsed; it is requested again until then.
async fn listed(api: &Docker) -> Vec<ContainerSummary> {
    let options = ListContainersOptionsBuilder::default().all(true).build();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match api.list_containers(Some(options.clone())).await {
            Err(Error::JsonDataError { .. }) if Instant::now() < deadline => testkit::poll_pause_async().await,
            listed => return listed.expect("containers"),
        }
    }
}

/// Returns the process id of a container; zero when it has ended.
async fn pid(api: &Docker, id: &str) -> i32 {
    let inspected = api.inspect_container(id, None::<InspectContainerOptions>).await.ok();
    let pid = inspected.and_then(|container| container.state).and_then(|state| state.pid);
    pid.and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default()
}
