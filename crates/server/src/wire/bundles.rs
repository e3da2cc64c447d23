//! The query of an import.

use protocol::SessionId;
use serde::Deserialize;
use utoipa::IntoParams;

/// Query of `POST /v1/import`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ImportQuery {
    /// The id of the imported session; its original id if absent.
    #[serde(rename = "as")]
    #[param(required = false)]
    pub(crate) new_id: Option<SessionId>,
}
