//! `viv sessions export`, `import` and `rm`.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use jail::Spawner;
use protocol::{ProblemCode, SessionId, SessionInfo};

use crate::config::Config;
use crate::failure::Failure;
use crate::output;
use crate::policy::{PolicyContext, choose};
use crate::session_access::SessionAccess;

/// Runs `work` in the server if one answers, else in this process.
async fn with_sessions<T>(
    config: &Config,
    spawner: Spawner,
    json: bool,
    work: impl AsyncFnOnce(&SessionAccess) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let policy = Arc::new(choose(&PolicyContext::of(config, json), Some("balanced"), &[])?);
    let access = SessionAccess::open(config, policy, spawner).await?;
    let outcome = work(&access).await;
    access.close().await;
    outcome
}

/// Runs `viv sessions rm`.
pub(super) async fn remove(ids: &[SessionId], config: &Config, spawner: Spawner, json: bool) -> Result<(), Failure> {
    with_sessions(config, spawner, json, async |access| {
        for id in ids {
            access.delete(id).await?;
        }
        Ok(())
    })
    .await
}

/// Shows the sessions and asks whether to delete them; fails without a terminal.
pub(super) async fn may_remove(sessions: &[SessionInfo]) -> Result<bool, Failure> {
    let name = |session: &SessionInfo| session.name.clone().unwrap_or_else(|| session.session_id.to_string());
    if !output::stdin_is_terminal() || !output::stderr_is_terminal() {
        let names = sessions.iter().map(name).collect::<Vec<_>>().join(" ");
        let what = "deleting sessions without a terminal needs `--yes`: a deleted session cannot be brought back";
        return Err(Failure::new(ProblemCode::NoTerminal, what).help(format!("viv sessions rm --yes {names}")));
    }
    for session in sessions {
        output::print_message(&format!("{} · {}", name(session), session.title.as_deref().unwrap_or_default()));
    }
    let answer = crate::prompter::ask_choice("delete for good? [y]es · [n]o: ", &["y", "yes", "n", "no"]).await;
    Ok(matches!(answer.as_str(), "y" | "yes"))
}

/// Runs `viv sessions export`.
pub(super) async fn export(
    id: &SessionId,
    output: &Path,
    config: &Config,
    spawner: Spawner,
    json: bool,
) -> Result<(), Failure> {
    let mut to: Box<dyn Write> = if output == Path::new("-") {
        check_not_on_terminal(id)?;
        output::data_writer()
    } else {
        let made = File::options().write(true).create(true).truncate(true).mode(0o600).open(output);
        Box::new(made.map_err(|error| not_used(output, &error))?)
    };
    with_sessions(config, spawner, json, async |access| access.export(id, &mut *to).await).await
}

/// Fails if stdout is a terminal, because a bundle is not text.
fn check_not_on_terminal(id: &SessionId) -> Result<(), Failure> {
    if !output::stdout_is_terminal() {
        return Ok(());
    }
    let what = "a bundle is not text: it is not written to a terminal";
    Err(Failure::new(ProblemCode::InvalidRequest, what).help(format!("viv sessions export {id} --output {id}.viv")))
}

/// Runs `viv sessions import`.
pub(super) async fn import(
    file: &Path,
    new_id: Option<SessionId>,
    config: &Config,
    spawner: Spawner,
    json: bool,
) -> Result<SessionInfo, Failure> {
    let bundle = File::open(file).map_err(|error| not_used(file, &error))?;
    with_sessions(config, spawner, json, async |access| access.import(bundle, new_id).await).await
}

fn not_used(path: &Path, error: &dyn std::error::Error) -> Failure {
    Failure::new(ProblemCode::InvalidRequest, format!("cannot open the file `{}`", path.display()))
        .because(error)
        .help("viv sessions export @last --output session.viv")
}
