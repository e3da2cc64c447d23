//! A repository of skills, fetched without its history.
//!
//! What is fetched is not trusted: no hook, no helper of a transport and no program of the repository runs here.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::SkillError;
use super::way::Way;

/// No repository of skills takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Settings under which nothing of a repository is run.
const CAREFUL: [&str; 8] = [
    "-c",
    "protocol.ext.allow=never",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.symlinks=false",
];

/// Host and port of an address; none for a repository on this machine.
pub(super) fn remote(address: &str) -> Result<Option<(String, u16)>, SkillError> {
    let unusable = || SkillError::Unusable(address.to_owned());
    if Path::new(address).is_absolute() || address.starts_with("file:///") {
        return Ok(None);
    }
    let (scheme, rest) = address.split_once("://").ok_or_else(unusable)?;
    let usual = match scheme {
        "https" => 443,
        "http" => 80,
        _ => return Err(unusable()),
    };
    let authority = rest.split('/').next().unwrap_or_default();
    // A name and a password in an address would end in records.
    if authority.is_empty() || authority.contains('@') {
        return Err(unusable());
    }
    match authority.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') && !port.contains(']') => {
            Ok(Some((host.to_owned(), port.parse().map_err(|_| unusable())?)))
        }
        _ => Ok(Some((authority.to_owned(), usual))),
    }
}

/// Fetches one commit of a repository into `folder`, which is made; half of one is never left there.
pub(super) async fn fetch(address: &str, reference: Option<&str>, folder: &Path, way: &Way) -> Result<(), SkillError> {
    let reference = reference.unwrap_or("HEAD");
    if reference.starts_with('-') {
        return Err(SkillError::Unusable(reference.to_owned()));
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
        git(&new, arguments, way).await.map_err(failed)?;
    }
    let finished = async {
        tokio::fs::remove_dir_all(new.join(".git")).await?;
        tokio::fs::rename(&new, folder).await
    };
    finished.await.map_err(|error| failed(error.to_string()))
}

async fn git(folder: &Path, arguments: &[&str], way: &Way) -> Result<(), String> {
    let mut command = Command::new("sh");
    // Whatever it fetches, and wherever it is sent on to, goes through our proxy or not at all.
    let proxy = format!("http.proxy=http://{}", way.address());
    let careful = CAREFUL.into_iter().chain(["-c", &proxy]);
    command.env_remove("no_proxy").env_remove("NO_PROXY");
    // The user inside a sandbox is another one: what only its owner can read, an agent could not.
    command.args(["-c", "umask 022 && exec git \"$@\"", "git"]).args(careful).args(arguments);
    command.current_dir(folder).env("GIT_TERMINAL_PROMPT", "0").env("GIT_LFS_SKIP_SMUDGE", "1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let run = async { command.spawn()?.wait_with_output().await };
    match tokio::time::timeout(PATIENCE, run).await {
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Ok(Err(error)) => Err(format!("git cannot be run: {error}")),
        Err(_) => Err("it took too long".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_can_be_judged_are_fetched() {
        let host = |address: &str| remote(address).map_err(|error| error.to_string());
        assert_eq!(host("https://example.com/a.git"), Ok(Some(("example.com".to_owned(), 443))));
        assert_eq!(host("http://example.com:8080/a"), Ok(Some(("example.com".to_owned(), 8080))));
        assert_eq!(host("/srv/skills.git"), Ok(None));
        assert_eq!(host("file:///srv/skills.git"), Ok(None));
        for bad in
            ["ext::sh -c id", "ssh://example.com/a", "git@example.com:a", "https://u:p@example.com/a", "a/b", "-x"]
        {
            assert!(host(bad).is_err(), "`{bad}` was taken");
        }
    }
}
