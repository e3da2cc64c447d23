//! `viv sessions stop`: the end of a session, whoever runs it.

use std::process::ExitCode;
use std::sync::Arc;

use jail::Spawner;
use protocol::SessionId;
use store::{SessionIndex, SystemClock};

use crate::client::ApiClient;
use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::policy::{PolicyContext, choose};
use crate::session_access::SessionAccess;

/// Carries out `viv sessions stop`.
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
        anstream::eprintln!("session {id} has ended before");
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(owner) = ApiClient::of_owner(&directory, &record.owner).await {
        owner.terminate(id).await?;
        return Ok(ExitCode::SUCCESS);
    }
    // The server runs it; or nobody does any more, and we are the one to write down that it has ended.
    let policy = Arc::new(choose(&PolicyContext::of(config, json), Some("balanced"), &[])?);
    let front = SessionAccess::open(config, policy, spawner).await?;
    let ended = front.terminate(id).await;
    front.close().await;
    ended.map(|()| ExitCode::SUCCESS)
}
