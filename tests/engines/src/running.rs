//! Containers that an engine runs, as the engine tells of them.

use std::path::Path;
use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::ContainerSummary;
use bollard::query_parameters::{InspectContainerOptions, ListContainersOptionsBuilder};

/// How long a list that cannot be read is asked for again, and how often.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);

/// One container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningContainer {
    /// By which the engine knows it.
    pub id: String,
    /// Whose it is, as its label says.
    pub owner: String,
    /// Its first process, in the host's numbers.
    pub pid: i32,
}

/// What runs with the engine behind `socket`.
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

/// Podman says of a container that is about to end that it is `stopped`, which is no word of the API, and the whole list
/// cannot be read: it is asked again until that has passed.
async fn listed(api: &Docker) -> Vec<ContainerSummary> {
    let options = ListContainersOptionsBuilder::default().all(true).build();
    let deadline = Instant::now() + PATIENCE;
    loop {
        match api.list_containers(Some(options.clone())).await {
            Err(Error::JsonDataError { .. }) if Instant::now() < deadline => tokio::time::sleep(PAUSE).await,
            listed => return listed.expect("containers"),
        }
    }
}

/// Zero when it is gone meanwhile.
async fn pid(api: &Docker, id: &str) -> i32 {
    let told = api.inspect_container(id, None::<InspectContainerOptions>).await.ok();
    let pid = told.and_then(|told| told.state).and_then(|state| state.pid);
    pid.and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default()
}
