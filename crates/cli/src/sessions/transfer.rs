//! Sessions as files, and their end: `viv sessions export`, `import` and `rm`.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use jail::Spawner;
use protocol::{ProblemCode, SessionId, SessionInfo};

use crate::config::Config;
use crate::failure::Failure;
use crate::policy::{PolicyContext, choose};
use crate::session_access::SessionAccess;

/// Runs one thing in the server if one answers, else here.
async fn with_front<T>(
    config: &Config,
    spawner: Spawner,
    json: bool,
    work: impl AsyncFnOnce(&SessionAccess) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let policy = Arc::new(choose(&PolicyContext::of(config, json), Some("balanced"), &[])?);
    let front = SessionAccess::open(config, policy, spawner).await?;
    let outcome = work(&front).await;
    front.close().await;
    outcome
}

/// `viv sessions rm`
pub(super) async fn remove(ids: &[SessionId], config: &Config, spawner: Spawner, json: bool) -> Result<(), Failure> {
    with_front(config, spawner, json, async |front| {
        for id in ids {
            front.delete(id).await?;
        }
        Ok(())
    })
    .await
}

/// `viv sessions export`
pub(super) async fn export(
    id: &SessionId,
    output: &Path,
    config: &Config,
    spawner: Spawner,
    json: bool,
) -> Result<(), Failure> {
    let mut to: Box<dyn Write> = if output == Path::new("-") {
        Box::new(std::io::stdout().lock())
    } else {
        let made = File::options().write(true).create(true).truncate(true).mode(0o600).open(output);
        Box::new(made.map_err(|error| not_used(output, &error))?)
    };
    with_front(config, spawner, json, async |front| front.export(id, &mut *to).await).await
}

/// `viv sessions import`
pub(super) async fn import(
    file: &Path,
    new_id: Option<SessionId>,
    config: &Config,
    spawner: Spawner,
    json: bool,
) -> Result<SessionInfo, Failure> {
    let bundle = File::open(file).map_err(|error| not_used(file, &error))?;
    with_front(config, spawner, json, async |front| front.import(bundle, new_id).await).await
}

fn not_used(path: &Path, error: &dyn std::error::Error) -> Failure {
    Failure::new(ProblemCode::InvalidRequest, format!("cannot use the file `{}`", path.display())).because(error)
}
