//! How changes of a workspace travel.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

/// Query of `GET …/changes`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ChangesQuery {
    /// How they are told: `json`, `stat` or `diff`.
    #[serde(default)]
    #[param(inline, required = false)]
    pub(crate) format: ChangesFormat,
}

/// How changes are told.
#[derive(Deserialize, Default, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ChangesFormat {
    /// Each path, with what happened to it and how many lines.
    #[default]
    Json,
    /// The same for people, a line a file.
    Stat,
    /// One patch.
    Diff,
}

/// Body of `POST …/apply`.
#[derive(Deserialize, Default, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApplyBody {
    /// Relative to the workspace; without any, everything.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub(crate) paths: Vec<PathBuf>,
}

/// Answer of `GET …/changes`.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChangeList {
    /// Each path, with what happened to it and how many lines.
    #[schema(value_type = Vec<Object>)]
    pub(crate) changes: Value,
}

/// Answer of `POST …/apply`.
#[derive(Serialize, ToSchema)]
pub(crate) struct AppliedList {
    /// Each path, with what happened to it.
    #[schema(value_type = Vec<Object>)]
    pub(crate) applied: Value,
}
