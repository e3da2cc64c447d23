//! Containers that an engine runs, as the engine tells of them.

use std::path::Path;

use bollard::Docker;
use bollard::query_parameters::{InspectContainerOptions, ListContainersOptionsBuilder};

/// One container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// By which the engine knows it.
    pub id: String,
    /// Whose it is, as its label says.
    pub owner: String,
    /// Its first process, in the host's numbers.
    pub pid: i32,
}

/// What runs with the engine behind `socket`.
pub async fn running(socket: &Path) -> Vec<Running> {
    let api = super::connect(socket).await;
    let options = ListContainersOptionsBuilder::default().all(true).build();
    let mut found = Vec::new();
    for listed in api.list_containers(Some(options)).await.expect("containers") {
        let owner = listed.labels.unwrap_or_default().remove("vivarium.owner").unwrap_or_default();
        let id = listed.id.expect("a container has an id");
        let pid = pid(&api, &id).await;
        found.push(Running { id, owner, pid });
    }
    found
}

/// Zero when it is gone meanwhile.
async fn pid(api: &Docker, id: &str) -> i32 {
    let told = api.inspect_container(id, None::<InspectContainerOptions>).await.ok();
    let pid = told.and_then(|told| told.state).and_then(|state| state.pid);
    pid.and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default()
}
