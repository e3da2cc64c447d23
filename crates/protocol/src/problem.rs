//! What a program may know about a failure: a stable code and a problem document.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $status:literal, $exit:literal;)*) => {
        /// Stable identifier of a failure; listed in `docs/errors.md`, never renamed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ProblemCode { $($(#[$doc])* $variant,)* }

        impl ProblemCode {
            /// Every code there is.
            pub const ALL: &[ProblemCode] = &[$(ProblemCode::$variant,)*];

            /// As it stands in JSON and on the terminal.
            pub fn as_str(self) -> &'static str {
                match self { $(ProblemCode::$variant => $text,)* }
            }

            /// The HTTP status that goes with it.
            pub fn status(self) -> u16 {
                match self { $(ProblemCode::$variant => $status,)* }
            }

            /// The exit code of `viv` that goes with it.
            pub fn exit(self) -> u8 {
                match self { $(ProblemCode::$variant => $exit,)* }
            }
        }
    };
}

codes! {
    /// The request or argument makes no sense.
    InvalidRequest = "invalid_request", 400, 2;
    /// No agent of that name.
    UnsupportedAgent = "unsupported_agent", 400, 2;
    /// The agent is known but not installed.
    AgentNotInstalled = "agent_not_installed", 404, 3;
    /// Installing the agent failed.
    InstallFailed = "install_failed", 500, 1;
    /// The agent's process ended when it should not have.
    AgentProcessExited = "agent_process_exited", 500, 1;
    /// No token, or one that opens nothing here.
    TokenInvalid = "token_invalid", 401, 4;
    /// No token has that id.
    TokenNotFound = "token_not_found", 404, 3;
    /// The token is good, but not for this.
    PermissionDenied = "permission_denied", 403, 4;
    /// No session is made on that directory, or not by this caller.
    DirectoryNotAllowed = "directory_not_allowed", 403, 4;
    /// No session of that id.
    SessionNotFound = "session_not_found", 404, 3;
    /// A session of that id exists.
    SessionAlreadyExists = "session_already_exists", 409, 2;
    /// The session has ended.
    SessionEnded = "session_ended", 409, 2;
    /// The session has not ended.
    SessionOpen = "session_open", 409, 2;
    /// A turn is running.
    TurnRunning = "turn_running", 409, 2;
    /// The permission was answered, or resolved when its turn ended.
    PermissionNotPending = "permission_not_pending", 409, 2;
    /// The session never asked for that permission.
    PermissionNotFound = "permission_not_found", 404, 3;
    /// The question was answered, or resolved when its turn ended.
    QuestionNotPending = "question_not_pending", 409, 2;
    /// The session never asked that question.
    QuestionNotFound = "question_not_found", 404, 3;
    /// The message no longer waits: its turn has begun, or it was removed.
    MessageNotQueued = "message_not_queued", 409, 2;
    /// The session never had that message in its queue.
    MessageNotFound = "message_not_found", 404, 3;
    /// No task of that id.
    TaskNotFound = "task_not_found", 404, 3;
    /// No grant of that id is in force.
    GrantNotFound = "grant_not_found", 404, 3;
    /// The `Idempotency-Key` names another request.
    IdempotencyKeyReused = "idempotency_key_reused", 422, 2;
    /// The request of that `Idempotency-Key` is being done.
    IdempotencyKeyInFlight = "idempotency_key_in_flight", 409, 2;
    /// The bundle is damaged, or is none.
    BundleInvalid = "bundle_invalid", 422, 2;
    /// The agent cannot keep that mode.
    ModeNotSupported = "mode_not_supported", 400, 2;
    /// Nobody serves the data directory.
    ServerNotRunning = "server_not_running", 503, 3;
    /// The server is about to end, and takes nothing new.
    ShuttingDown = "shutting_down", 503, 1;
    /// The event stream broke.
    StreamError = "stream_error", 502, 7;
    /// Nothing came for too long.
    Timeout = "timeout", 504, 124;
    /// No such route.
    RouteNotFound = "route_not_found", 404, 3;
    /// The route does not take this method.
    MethodNotAllowed = "method_not_allowed", 405, 2;
    /// The body is larger than the route takes.
    BodyTooLarge = "body_too_large", 413, 2;
    /// The body is of another media type.
    UnsupportedMediaType = "unsupported_media_type", 415, 2;
    /// The `Host` or `Origin` header is not ours.
    HostNotAllowed = "host_not_allowed", 403, 4;
    /// The policy says no.
    PolicyDenied = "policy_denied", 403, 5;
    /// The policy file cannot be read.
    PolicyInvalid = "policy_invalid", 422, 5;
    /// A layer asked for more than the ones above it allow.
    PolicyWideningDenied = "policy_widening_denied", 403, 5;
    /// The sandbox could not be made, or would not have been tight.
    SandboxCreateError = "sandbox_create_error", 500, 6;
    /// A listener could not be bound.
    ProxyBindError = "proxy_bind_error", 500, 6;
    /// Another server has the data directory.
    DataDirInUse = "data_dir_in_use", 409, 6;
    /// A configuration file is wrong.
    ConfigInvalid = "config_invalid", 422, 2;
    /// The model's side failed.
    UpstreamError = "upstream_error", 502, 7;
    /// The budget is used up.
    BudgetExceeded = "budget_exceeded", 402, 8;
    /// The model has no price, so nothing is asked of it.
    PriceUnknown = "price_unknown", 400, 2;
    /// A recording holds no answer to a request of its replay.
    ReplayMiss = "replay_miss", 403, 9;
    /// A replay did not do what the recorded session did.
    ReplayDiffers = "replay_differs", 409, 9;
    /// A session cannot be replayed as it was recorded.
    ReplayImpossible = "replay_impossible", 409, 2;
    /// A command in the sandbox failed.
    RuntimeError = "runtime_error", 500, 1;
    /// An artifact is not there or cannot be read.
    ArtifactReadError = "artifact_read_error", 404, 3;
    /// A host file changed since the session began.
    ApplyConflict = "apply_conflict", 409, 2;
    /// The path leads out of the workspace.
    FileOutsideWorkspace = "file_outside_workspace", 400, 2;
    /// There is no such file in the workspace.
    FileNotFound = "file_not_found", 404, 3;
    /// There is a file of that name.
    FileExists = "file_exists", 409, 2;
    /// There is something of another kind, or a directory that is not empty.
    FileWrongKind = "file_wrong_kind", 409, 2;
    /// The user inside may not do that to the file.
    FilePermissionDenied = "file_permission_denied", 403, 4;
    /// The file or archive is larger than the caller takes.
    FileTooLarge = "file_too_large", 413, 2;
    /// The disk limit of the sandbox is reached.
    WorkspaceFull = "workspace_full", 507, 1;
    /// A command inside holds on to the file.
    FileBusy = "file_busy", 409, 1;
    /// The archive holds what is never unpacked.
    ArchiveRefused = "archive_refused", 422, 2;
    /// The system could not reach the file.
    FileUnavailable = "file_unavailable", 500, 1;
    /// The sandbox was destroyed.
    SandboxGone = "sandbox_gone", 409, 2;
    /// The record could not be kept, so nothing else was done.
    JournalUnavailable = "journal_unavailable", 503, 1;
    /// The disk of the data directory takes nothing more.
    DiskFull = "disk_full", 507, 1;
    /// What is on record of the session is not what was written.
    JournalDamaged = "journal_damaged", 500, 1;
    /// A defect of ours.
    Internal = "internal", 500, 1;
}

/// A problem document (RFC 9457).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// `urn:viv:error:<code>`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What failed, the same for every instance.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// What failed this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Stable code.
    pub code: String,
    /// A line that can be pasted to mend it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Where to read more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docs: Option<String>,
    /// The request it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Anything else.
    #[serde(flatten)]
    pub extensions: Map<String, Value>,
}

impl Problem {
    /// A problem with a code and what failed this time.
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

    /// Adds a line that can be pasted.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
