//! The remedy for each failure of a session.

use agents::AgentError;
use sandbox::SandboxError;
use store::is_disk_full;

use super::SessionError;
use crate::WorkspaceForbidden;

impl SessionError {
    /// Returns a remedy, as a command where there is one.
    pub fn hint(&self) -> Option<String> {
        if is_disk_full(self) {
            return Some("df -h".to_owned());
        }
        match self {
            Self::NotFound(_) | Self::NoTerminal(_) | Self::IdUsed(_) | Self::TooManySessions { .. } => {
                Some("viv sessions ls".to_owned())
            }
            Self::PermissionNotFound(_) | Self::QuestionNotFound(_) => Some("viv perms ls".to_owned()),
            Self::NotRunning(id) => Some(format!("viv api POST /v1/sessions/{id}/resume")),
            Self::UnknownAgent(_) => Some("viv agents ls".to_owned()),
            Self::UnknownUpstream { .. } | Self::UpstreamUnusable { .. } => Some("viv credentials".to_owned()),
            Self::NotInstalled { agent, version } => Some(install_command(agent, version.as_deref())),
            Self::Agent(AgentError::NodeMissing(agent)) => Some(install_command(agent, None)),
            Self::AlreadyExists(id) | Self::TurnRunning(id) | Self::QueueFull { id, .. } => {
                Some(format!("viv sessions show {id}"))
            }
            Self::DirectoryNotAllowed { path, why: WorkspaceForbidden::Outside } => {
                Some(format!("viv serve --workspace-root={}", path.display()))
            }
            Self::DirectoryNotAllowed { .. } => {
                Some("mkdir -p ~/work && viv run mock hello --workspace ~/work".to_owned())
            }
            Self::Interactive(id) => Some(format!("viv sessions attach {id}")),
            Self::Agent(AgentError::NoTerminalUi(agent)) => Some(format!("viv run {agent} hello")),
            Self::NotEnded(id) => Some(format!("viv sessions stop {id}")),
            Self::DigestRequired(id) | Self::ChangeSetChanged { id, .. } => {
                Some(format!("viv api GET /v1/sessions/{id}/changes"))
            }
            Self::ChangeSetNotFound { id, .. } => Some(format!("viv sessions sets {id}")),
            Self::Storage(exceeded) => Some(exceeded.hint().to_owned()),
            Self::Commits(error) => error.merge_command(),
            Self::Damaged { id, .. } => Some(format!("viv sessions rm {id}")),
            Self::Sandbox(SandboxError::Unavailable { fix, .. }) => Some(fix.clone()),
            Self::Sandbox(SandboxError::Connect { .. }) => Some("viv sessions ls --state=idle".to_owned()),
            Self::Sandbox(_) => Some("viv doctor".to_owned()),
            _ => None,
        }
    }
}

fn install_command(agent: &str, version: Option<&str>) -> String {
    let version = version.map(|version| format!("@{version}")).unwrap_or_default();
    format!("viv agents install {agent}{version}")
}
