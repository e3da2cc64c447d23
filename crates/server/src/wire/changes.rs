//! Request and response bodies about change sets.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

/// Query of `GET …/changes`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ChangesQuery {
    /// The format of the changes: `json`, `stat` or `diff`.
    #[serde(default)]
    #[param(inline, required = false)]
    pub(crate) format: ChangesFormat,
}

/// The format of changes.
#[derive(Deserialize, Default, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ChangesFormat {
    /// JSON: each path with its kind of change and number of lines.
    #[default]
    Json,
    /// Text: one line per file.
    Stat,
    /// A patch.
    Diff,
}

/// Body of `POST …/apply`.
#[derive(Deserialize, Default, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApplyBody {
    /// Paths relative to the workspace; all changes if empty.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub(crate) paths: Vec<PathBuf>,
}

/// Response of `GET …/changes`.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChangeList {
    /// Each path with its kind of change and number of lines.
    #[schema(value_type = Vec<Object>)]
    pub(crate) changes: Value,
}

/// Response of `POST …/apply`.
#[derive(Serialize, ToSchema)]
pub(crate) struct AppliedList {
    /// Each applied path with its kind of change.
    #[schema(value_type = Vec<Object>)]
    pub(crate) applied: Value,
}
