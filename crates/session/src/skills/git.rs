//! Fetches one commit of a git repository.
//!
//! The repository is not trusted: none of its hooks, transport helpers or programs run on the host.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::SkillError;
use super::fetch_proxy::FetchProxy;

/// Longest run of one git command.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Settings that keep git from running code of the repository.
const SAFE_SETTINGS: [&str; 8] = [
    "-c",
    "protocol.ext.allow=never",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.symlinks=false",
];

/// Returns host and port of a repository URL; `None` for a repository on this machine. Fails for other schemes.
pub(super) fn remote(address: &str) -> Result<Option<(String, u16)>, SkillError> {
    let invalid = || SkillError::Invalid(address.to_owned());
    if Path::new(address).is_absolute() || address.starts_with("file:///") {
        return Ok(None);
    }
    let (scheme, rest) = address.split_once("://").ok_or_else(invalid)?;
    let default_port = match scheme {
        "https" => 443,
        "http" => 80,
        _ => return Err(invalid()),
    };
    let authority = rest.split('/').next().unwrap_or_default();
    // A user name and password in a URL would end up in the journal.
    if authority.is_empty() || authority.contains('@') {
        return Err(invalid());
    }
    match authority.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') && !port.contains(']') => {
            Ok(Some((host.to_owned(), port.parse().map_err(|_| invalid())?)))
        }
        _ => Ok(Some((authority.to_owned(), default_port))),
    }
}

/// Fetches one commit of a repository into the new `folder`. A failed fetch leaves no partial folder.
pub(super) async fn fetch(
    address: &str,
    reference: Option<&str>,
    folder: &Path,
    proxy: &FetchProxy,
) -> Result<(), SkillError> {
    let reference = reference.unwrap_or("HEAD");
    if reference.starts_with('-') {
        return Err(SkillError::Invalid(reference.to_owned()));
    }
    let failed = |why: String| SkillError::Fetch { source_name: address.to_owned(), why };
    let new = folder.with_extension("new");
    let _ = tokio::fs::remove_dir_all(&new).await;
    tokio::fs::create_dir_all(&new).await.map_err(|error| failed(error.to_string()))?;
    for arguments in [
        &["init", "--quiet", "--template="][..],
        &["fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--", address, reference],
        &["checkout", "--quiet", "--detach", "FETCH_HEAD"],
    ] {
        run_git(&new, arguments, proxy).await.map_err(failed)?;
    }
    let finished = async {
        tokio::fs::remove_dir_all(new.join(".git")).await?;
        tokio::fs::rename(&new, folder).await
    };
    finished.await.map_err(|error| failed(error.to_string()))
}

/// Variables that give git settings or programs in addition to its configuration.
const GIT_VARIABLES: [&str; 16] = [
    "GIT_CONFIG",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_SYSTEM",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_TEMPLATE_DIR",
    "GIT_EXEC_PATH",
    "GIT_PROXY_COMMAND",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_ASKPASS",
    "GIT_EXTERNAL_DIFF",
];

/// Returns a git command that reads no configuration of the user or the machine: `insteadOf` would fetch from another
/// place than the policy allowed, and a proxy for one URL would bypass the egress proxy.
fn git(folder: &Path, arguments: &[&str], proxy: &str) -> Command {
    let mut command = Command::new("sh");
    // All requests and redirects go through the egress proxy.
    let proxy = format!("http.proxy=http://{proxy}");
    let settings = SAFE_SETTINGS.into_iter().chain(["-c", &proxy]);
    for name in GIT_VARIABLES.into_iter().chain(["no_proxy", "NO_PROXY"]) {
        command.env_remove(name);
    }
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    // The sandbox has another user, who must be able to read the files.
    command.args(["-c", "umask 022 && exec git \"$@\"", "git"]).args(settings).args(arguments);
    command.current_dir(folder).env("GIT_TERMINAL_PROMPT", "0").env("GIT_LFS_SKIP_SMUDGE", "1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

async fn run_git(folder: &Path, arguments: &[&str], proxy: &FetchProxy) -> Result<(), String> {
    let mut command = git(folder, arguments, &proxy.address().to_string());
    let run = async { command.spawn()?.wait_with_output().await };
    match tokio::time::timeout(TIMEOUT, run).await {
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Ok(Err(error)) => Err(format!("cannot run git: {error}")),
        Err(_) => Err("git timed out".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs git as for a skill, with the user's configuration in `home`. Returns whether it succeeded.
    async fn fetches(home: &Path, address: &str) -> bool {
        let folder = tempfile::tempdir().unwrap();
        for arguments in [&["init", "--quiet", "--template="][..], &["fetch", "--quiet", "--", address, "HEAD"]] {
            let mut command = git(folder.path(), arguments, "127.0.0.1:9");
            command.env("HOME", home).env("XDG_CONFIG_HOME", home).env("GIT_CONFIG_COUNT", "0");
            if !command.spawn().unwrap().wait_with_output().await.unwrap().status.success() {
                return false;
            }
        }
        true
    }

    #[tokio::test]
    async fn settings_of_the_user_do_not_redirect_a_fetch() {
        let (home, repository) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let address = repository.path().to_str().unwrap();
        for arguments in [&["init", "--quiet"][..], &["commit", "--quiet", "--allow-empty", "-m", "one"]] {
            let mut command = git(repository.path(), arguments, "127.0.0.1:9");
            for who in ["AUTHOR", "COMMITTER"] {
                command.env(format!("GIT_{who}_NAME"), "t").env(format!("GIT_{who}_EMAIL"), "t@example.com");
            }
            assert!(command.spawn().unwrap().wait().await.unwrap().success(), "{arguments:?}");
        }
        let redirect = format!("[url \"/nowhere/\"]\n\tinsteadOf = {address}\n");
        std::fs::write(home.path().join(".gitconfig"), redirect).unwrap();
        assert!(fetches(home.path(), address).await, "`insteadOf` of the user was obeyed");
        // The control: git obeys the same file when it may read it.
        let mut plain = Command::new("git");
        plain.args(["ls-remote", address]).env("HOME", home.path()).env_remove("GIT_CONFIG_GLOBAL");
        plain.stdout(Stdio::null()).stderr(Stdio::null());
        assert!(!plain.spawn().unwrap().wait().await.unwrap().success());
    }

    #[test]
    fn only_http_and_local_repositories_are_accepted() {
        let host = |address: &str| remote(address).map_err(|error| error.to_string());
        assert_eq!(host("https://example.com/a.git"), Ok(Some(("example.com".to_owned(), 443))));
        assert_eq!(host("http://example.com:8080/a"), Ok(Some(("example.com".to_owned(), 8080))));
        assert_eq!(host("/srv/skills.git"), Ok(None));
        assert_eq!(host("file:///srv/skills.git"), Ok(None));
        for bad in
            ["ext::sh -c id", "ssh://example.com/a", "git@example.com:a", "https://u:p@example.com/a", "a/b", "-x"]
        {
            assert!(host(bad).is_err(), "`{bad}` was accepted");
        }
    }
}
