//! How a bundle is asked to be taken in.

use protocol::SessionId;
use serde::Deserialize;
use utoipa::IntoParams;

/// Query of `POST /v1/import`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ImportQuery {
    /// The id it gets here; the one it has when there is none.
    #[serde(rename = "as")]
    #[param(required = false)]
    pub(crate) new_id: Option<SessionId>,
}
