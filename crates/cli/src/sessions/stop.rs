//! `viv sessions stop`: stop a session in whichever process runs it.

use std::process::ExitCode;
use std::sync::Arc;

use jail::Spawner;
use protocol::SessionId;
use store::{SessionIndex, SystemClock};

use crate::client::ApiClient;
use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::output::message;
use crate::policy::{PolicyContext, choose};
use crate::session_access::SessionAccess;

/// Runs `viv sessions stop`.
pub(crate) async fn carry_out(
    reference: &str,
    config: &Config,
    spawner: Spawner,
    json: bool,
) -> Result<ExitCode, Failure> {
    let directory = host::data_dir(config)?;
    let record = SessionIndex::open(&directory, Arc::new(SystemClock))?.find(reference)?;
    let id: &SessionId = &record.info.session_id;
    if record.info.ended {
        message!("session {id} has already ended");
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(owner) = ApiClient::of_owner(&directory, &record.owner).await {
        owner.terminate(id).await?;
        return Ok(ExitCode::SUCCESS);
    }
    // Either the server runs the session, or its process died; then this process records its end.
    let policy = Arc::new(choose(&PolicyContext::of(config, json), Some("balanced"), &[])?);
    let access = SessionAccess::open(config, policy, spawner).await?;
    let ended = access.terminate(id).await;
    access.close().await;
    ended.map(|()| ExitCode::SUCCESS)
}
