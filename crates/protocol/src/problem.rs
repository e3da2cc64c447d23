//! Stable error codes, and problem documents (RFC 9457).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $status:literal, $exit:literal;)*) => {
        /// A stable error code, listed in `docs/errors.md`. Codes are never renamed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ProblemCode { $($(#[$doc])* $variant,)* }

        impl ProblemCode {
            /// Every code.
            pub const ALL: &[ProblemCode] = &[$(ProblemCode::$variant,)*];

            /// Returns the code in JSON and on the terminal.
            pub fn as_str(self) -> &'static str {
                match self { $(ProblemCode::$variant => $text,)* }
            }

            /// Returns the HTTP status of the code.
            pub fn status(self) -> u16 {
                match self { $(ProblemCode::$variant => $status,)* }
            }

            /// Returns the exit code of `viv`.
            pub fn exit(self) -> u8 {
                match self { $(ProblemCode::$variant => $exit,)* }
            }
        }
    };
}

codes! {
    /// The request or argument is not valid.
    InvalidRequest = "invalid_request", 400, 2;
    /// No agent has that name.
    UnsupportedAgent = "unsupported_agent", 400, 2;
    /// The agent is known but not installed.
    AgentNotInstalled = "agent_not_installed", 404, 3;
    /// Installing the agent failed.
    InstallFailed = "install_failed", 500, 1;
    /// The agent's process ended unexpectedly.
    AgentProcessExited = "agent_process_exited", 500, 1;
    /// The token is missing or not valid.
    TokenInvalid = "token_invalid", 401, 4;
    /// No token has that id.
    TokenNotFound = "token_not_found", 404, 3;
    /// The scope of the token does not allow the request.
    PermissionDenied = "permission_denied", 403, 4;
    /// Sessions may not use that directory, or not for this caller.
    DirectoryNotAllowed = "directory_not_allowed", 403, 4;
    /// No session has that id.
    SessionNotFound = "session_not_found", 404, 3;
    /// A session with that id exists.
    SessionAlreadyExists = "session_already_exists", 409, 2;
    /// The session has ended.
    SessionEnded = "session_ended", 409, 2;
    /// The session has not ended.
    SessionOpen = "session_open", 409, 2;
    /// A turn is running.
    TurnRunning = "turn_running", 409, 2;
    /// The permission was already answered, or resolved at the end of its turn.
    PermissionNotPending = "permission_not_pending", 409, 2;
    /// The session has no permission with that id.
    PermissionNotFound = "permission_not_found", 404, 3;
    /// The question was already answered, or resolved at the end of its turn.
    QuestionNotPending = "question_not_pending", 409, 2;
    /// The session has no question with that id.
    QuestionNotFound = "question_not_found", 404, 3;
    /// Nothing can be reached on that port inside the sandbox.
    PortNotOpen = "port_not_open", 409, 3;
    /// The message is not queued: its turn has started, or it was removed.
    MessageNotQueued = "message_not_queued", 409, 2;
    /// The session has no message with that id.
    MessageNotFound = "message_not_found", 404, 3;
    /// No task has that id.
    TaskNotFound = "task_not_found", 404, 3;
    /// No active grant has that id.
    GrantNotFound = "grant_not_found", 404, 3;
    /// The `Idempotency-Key` was used for a different request.
    IdempotencyKeyReused = "idempotency_key_reused", 422, 2;
    /// The request with that `Idempotency-Key` is in progress.
    IdempotencyKeyInFlight = "idempotency_key_in_flight", 409, 2;
    /// The file is damaged, or not a bundle.
    BundleInvalid = "bundle_invalid", 422, 2;
    /// The agent does not support that mode.
    ModeNotSupported = "mode_not_supported", 400, 2;
    /// The session is interactive: its agent reads keys, not messages.
    SessionInteractive = "session_interactive", 409, 2;
    /// The session has no terminal, or its terminal is closed.
    TerminalNotFound = "terminal_not_found", 404, 3;
    /// No server runs for the data directory.
    ServerNotRunning = "server_not_running", 503, 3;
    /// The server is shutting down and accepts no new requests.
    ShuttingDown = "shutting_down", 503, 1;
    /// The event stream was interrupted.
    StreamError = "stream_error", 502, 7;
    /// The time limit was exceeded.
    Timeout = "timeout", 504, 124;
    /// The route does not exist.
    RouteNotFound = "route_not_found", 404, 3;
    /// The route does not support the method.
    MethodNotAllowed = "method_not_allowed", 405, 2;
    /// The body is larger than the route accepts.
    BodyTooLarge = "body_too_large", 413, 2;
    /// The route does not accept the media type of the body.
    UnsupportedMediaType = "unsupported_media_type", 415, 2;
    /// The `Host` or `Origin` header is not allowed.
    HostNotAllowed = "host_not_allowed", 403, 4;
    /// The policy denies the action.
    PolicyDenied = "policy_denied", 403, 5;
    /// The policy document is not valid.
    PolicyInvalid = "policy_invalid", 422, 5;
    /// A layer asks for more than the layers above it allow.
    PolicyWideningDenied = "policy_widening_denied", 403, 5;
    /// The sandbox could not be created, or would not enforce its policy.
    SandboxCreateError = "sandbox_create_error", 500, 6;
    /// A listener could not be bound.
    ProxyBindError = "proxy_bind_error", 500, 6;
    /// Another server uses the data directory.
    DataDirInUse = "data_dir_in_use", 409, 6;
    /// A configuration file is not valid.
    ConfigInvalid = "config_invalid", 422, 2;
    /// `viv config get` names a key that `viv.toml` does not set.
    ConfigKeyUnset = "config_key_unset", 404, 3;
    /// The upstream failed.
    UpstreamError = "upstream_error", 502, 7;
    /// The budget is used up.
    BudgetExceeded = "budget_exceeded", 402, 8;
    /// The rest of the budget is held by running calls.
    BudgetHeld = "budget_held", 429, 8;
    /// The model has no price, so its calls are refused.
    PriceUnknown = "price_unknown", 400, 2;
    /// The recording has no response to a request of the replay.
    ReplayMiss = "replay_miss", 403, 9;
    /// The replay differs from the recorded session.
    ReplayDiffers = "replay_differs", 409, 9;
    /// The session cannot be replayed.
    ReplayImpossible = "replay_impossible", 409, 2;
    /// A command in the sandbox failed.
    RuntimeError = "runtime_error", 500, 1;
    /// A permission request was denied because there is no terminal to ask on.
    NoTerminal = "no_terminal", 403, 10;
    /// An artifact does not exist or cannot be read.
    ArtifactReadError = "artifact_read_error", 404, 3;
    /// A file on the host changed after the start of the session.
    ApplyConflict = "apply_conflict", 409, 2;
    /// An apply must name the digest of the change set.
    DigestRequired = "digest_required", 428, 2;
    /// The digest does not name the current change set.
    ChangeSetChanged = "change_set_changed", 412, 2;
    /// The session has no change set with that number.
    ChangeSetNotFound = "change_set_not_found", 404, 3;
    /// The commits of a session cannot be imported into the host's repository.
    CommitsRefused = "commits_refused", 409, 2;
    /// The path is outside the workspace.
    FileOutsideWorkspace = "file_outside_workspace", 400, 2;
    /// The file does not exist in the workspace.
    FileNotFound = "file_not_found", 404, 3;
    /// The file exists.
    FileExists = "file_exists", 409, 2;
    /// The path is of another kind, or a directory that is not empty.
    FileWrongKind = "file_wrong_kind", 409, 2;
    /// The sandbox user may not access the file.
    FilePermissionDenied = "file_permission_denied", 403, 4;
    /// The file or archive is larger than allowed.
    FileTooLarge = "file_too_large", 413, 2;
    /// The disk limit of the sandbox is reached.
    WorkspaceFull = "workspace_full", 507, 1;
    /// A command in the sandbox uses the file.
    FileBusy = "file_busy", 409, 1;
    /// The archive contains an entry that is never unpacked.
    ArchiveRefused = "archive_refused", 422, 2;
    /// A system call on the file failed.
    FileUnavailable = "file_unavailable", 500, 1;
    /// The sandbox was destroyed.
    SandboxGone = "sandbox_gone", 409, 2;
    /// The journal could not be written, so the action was not performed.
    JournalUnavailable = "journal_unavailable", 503, 1;
    /// The disk of the data directory is full.
    DiskFull = "disk_full", 507, 1;
    /// The session reached its limit of bytes on disk.
    SessionStorageFull = "session_storage_full", 507, 1;
    /// The session reached a limit of the host budget.
    HostLimitExceeded = "host_limit_exceeded", 429, 1;
    /// Too many sessions are open.
    TooManySessions = "too_many_sessions", 429, 1;
    /// The journal of the session is damaged.
    JournalDamaged = "journal_damaged", 500, 1;
    /// A defect of `viv`.
    Internal = "internal", 500, 1;
}

/// A problem document (RFC 9457).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// `urn:viv:error:<code>`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Title of the error, the same for every occurrence.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// Description of this occurrence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The stable code.
    pub code: String,
    /// A command that helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Link to the documentation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docs: Option<String>,
    /// The id of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Other fields.
    #[serde(flatten)]
    pub extensions: Map<String, Value>,
}

impl Problem {
    /// Returns a problem with a code and a description.
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:viv:error:{}", code.as_str()),
            title: code.as_str().replace('_', " "),
            status: code.status(),
            detail: Some(detail.into()),
            code: code.as_str().to_owned(),
            hint: None,
            docs: Some(format!("docs/errors.md#{}", code.as_str())),
            request_id: None,
            extensions: Map::new(),
        }
    }

    /// Adds a command that helps.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
