//! The configuration of git inside a sandbox: the host's name and e-mail.
//!
//! Most hosts have them in a few plain files, which are read here. Git is asked only when a file includes others, because
//! a process costs more than a sandbox.

use std::path::{Path, PathBuf};

use agents::PlacedFile;
use sandbox::GitIdentity;

use crate::config::HostVariables;
use crate::lifecycle::SessionPlan;

/// The largest configuration file that is read here.
const MAX_BYTES: u64 = 1 << 20;

/// Returns the system's configuration of git for the sandbox of `plan`. A host without a name or e-mail gives a neutral one,
/// so that commits inside always work.
pub(crate) fn git_config(variables: &HostVariables, plan: &SessionPlan) -> PlacedFile {
    let identity = host_identity(variables, plan.directory.as_deref(), plan.id.as_str());
    PlacedFile { path: GitIdentity::SYSTEM_CONFIG.to_owned(), content: identity.system_config() }
}

fn host_identity(variables: &HostVariables, workspace: Option<&Path>, session: &str) -> GitIdentity {
    let Some(home) = variables.get("HOME").map(PathBuf::from) else { return GitIdentity::neutral(session) };
    let is_moved = ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"].iter().any(|name| variables.get(name).is_some());
    let user = variables.get("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
    let mut files = vec![PathBuf::from(GitIdentity::SYSTEM_CONFIG), user.join("git/config"), home.join(".gitconfig")];
    files.extend(workspace.map(|workspace| workspace.join(".git/config")));
    let is_linked = workspace.is_some_and(|workspace| workspace.join(".git").is_file());
    let texts: Option<Vec<String>> = files.iter().map(|file| text(file)).collect();
    let parsed = texts.filter(|_| !is_moved && !is_linked).and_then(|texts| GitIdentity::parse(&texts, session));
    parsed.unwrap_or_else(|| GitIdentity::ask_git(workspace, session))
}

/// Returns the text of a file, empty if it does not exist; `None` when only git can read it.
fn text(file: &Path) -> Option<String> {
    match std::fs::metadata(file) {
        Ok(found) if found.is_file() && found.len() <= MAX_BYTES => std::fs::read_to_string(file).ok(),
        Ok(_) => None,
        Err(_) => Some(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_the_hosts_and_the_workspace_comes_first() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().display().to_string();
        let variables = HostVariables::new(move |name| (name == "HOME").then(|| place.clone()));
        let workspace = home.path().join("work");
        std::fs::create_dir_all(workspace.join(".git")).unwrap();
        std::fs::write(home.path().join(".gitconfig"), "[user]\n\tname = Ada\n\temail = ada@example.com\n").unwrap();
        std::fs::write(workspace.join(".git/config"), "[user]\n\temail = work@example.com\n").unwrap();
        let found = host_identity(&variables, Some(&workspace), "s1");
        assert_eq!((found.name.as_str(), found.email.as_str()), ("Ada", "work@example.com"));
        let found = host_identity(&variables, None, "s1");
        assert_eq!((found.name.as_str(), found.email.as_str()), ("Ada", "ada@example.com"));
        assert_eq!(host_identity(&HostVariables::default(), Some(&workspace), "s1"), GitIdentity::neutral("s1"));
    }
}
