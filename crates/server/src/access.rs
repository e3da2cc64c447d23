//! Access control: the tokens of callers and the scopes that routes require.
//!
//! Only the SHA-256 of a token is stored. A caller over the Unix socket is identified by its user id. Session tokens of
//! the gateway are not valid here.

use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::StreamExt;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use protocol::{CreateSession, ProblemCode};
use session::{SessionOptions, WorkspaceAccess, detach_on_drop};
use sha2::{Digest, Sha256};
use store::TokenStore;
use subtle::ConstantTimeEq;

use crate::audit::{AuditGuard, AuditedCall};
use crate::error::ApiError;
use crate::peer::Peer;
use crate::state::AppState;

/// Names of callers without a stored token, in the audit log.
const ANYBODY: &str = "anybody";
const OWN_TOKEN: &str = "the server's own token";
/// Most characters of an account or user.
const LONGEST_NAME: usize = 255;
const USER: &str = "the user of this server";

/// The part of the API that a token may use. Scopes do not include each other, except that `Admin` includes all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenScope {
    /// Read sessions and their events.
    Read,
    /// Create sessions, send messages, interrupt, terminate.
    Drive,
    /// Answer permission requests and questions.
    Answer,
    /// Everything.
    Admin,
}

impl TokenScope {
    /// All scopes.
    pub const ALL: [Self; 4] = [Self::Read, Self::Drive, Self::Answer, Self::Admin];

    /// Returns the name of the scope.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Drive => "drive",
            Self::Answer => "answer",
            Self::Admin => "admin",
        }
    }

    /// Returns the scope with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == name)
    }
}

/// A token that is accepted, known only by its digest.
#[derive(Clone)]
pub struct AccessToken {
    digest: [u8; 32],
    scopes: Vec<TokenScope>,
}

impl AccessToken {
    /// Returns the token `text` with `scopes`.
    pub fn new(text: &str, scopes: impl Into<Vec<TokenScope>>) -> Self {
        Self { digest: Sha256::digest(text).into(), scopes: scopes.into() }
    }

    /// Returns the token with this SHA-256.
    pub fn from_digest(digest: [u8; 32], scopes: impl Into<Vec<TokenScope>>) -> Self {
        Self { digest, scopes: scopes.into() }
    }

    fn matches(&self, digest: &[u8; 32]) -> bool {
        self.digest.ct_eq(digest).into()
    }

    fn covers(&self, scope: TokenScope) -> bool {
        self.scopes.iter().any(|held| *held == scope || *held == TokenScope::Admin)
    }
}

impl std::fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessToken").field("scopes", &self.scopes).finish_non_exhaustive()
    }
}

/// The way in which callers over TCP are authenticated.
#[derive(Debug, Clone)]
pub enum AuthMode {
    /// No authentication; only on loopback addresses.
    None,
    /// One of these tokens.
    Tokens(Vec<AccessToken>),
    /// One of these tokens, or one in the data directory, which can be created and revoked while the server runs.
    Stored(Vec<AccessToken>, Arc<TokenStore>),
}

impl AuthMode {
    /// Returns the name and trust of the caller that sent `header`, if it has `scope`.
    fn authorize(&self, header: Option<&str>, scope: TokenScope) -> Result<(String, CallerTrust), ApiError> {
        let fixed = match self {
            // The caller can be any process of any user on this machine.
            Self::None => return Ok((ANYBODY.to_owned(), CallerTrust::Anonymous)),
            Self::Tokens(fixed) | Self::Stored(fixed, _) => fixed,
        };
        let presented = header
            .and_then(bearer_token)
            .ok_or_else(|| ApiError::new(ProblemCode::TokenInvalid, "the request has no token"))?;
        let digest: [u8; 32] = Sha256::digest(presented).into();
        // Compares with every token, so that the time does not reveal which one matched.
        let mut found = None;
        for token in fixed {
            if token.matches(&digest) {
                found = Some(token.clone());
            }
        }
        let (who, token) = match found {
            Some(token) => (OWN_TOKEN.to_owned(), token),
            None => self.find_stored(&digest)?,
        };
        if token.covers(scope) {
            let trust = if token.covers(TokenScope::Admin) { CallerTrust::Full } else { CallerTrust::Limited };
            return Ok((who, trust));
        }
        Err(ApiError::new(
            ProblemCode::PermissionDenied,
            format!("the token does not have the scope `{}`", scope.as_str()),
        ))
    }

    fn find_stored(&self, digest: &[u8; 32]) -> Result<(String, AccessToken), ApiError> {
        let Self::Stored(_, tokens) = self else { return Err(unknown_token()) };
        let found = tokens.find(digest).map_err(|error| {
            tracing::error!(%error, "cannot look up a token");
            ApiError::new(ProblemCode::Internal, "cannot read the stored tokens")
        })?;
        let record = found.ok_or_else(unknown_token)?;
        let scopes: Vec<TokenScope> = record.scopes.iter().filter_map(|scope| TokenScope::from_name(scope)).collect();
        Ok((record.id, AccessToken::from_digest(*digest, scopes)))
    }
}

fn unknown_token() -> ApiError {
    ApiError::new(ProblemCode::TokenInvalid, "the token is unknown, expired or revoked")
}

/// Returns the token in an `Authorization` header.
fn bearer_token(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    let known = scheme.eq_ignore_ascii_case("bearer") || scheme.eq_ignore_ascii_case("token");
    known.then(|| token.trim()).filter(|token| !token.is_empty())
}

fn describe(caller: &str) -> String {
    match caller {
        ANYBODY => "a caller without a token".to_owned(),
        USER => "a program of the same user".to_owned(),
        OWN_TOKEN => OWN_TOKEN.to_owned(),
        id => format!("token {id}"),
    }
}

/// The directories of the host that a caller may use as workspaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallerTrust {
    /// Any directory: the caller is the user of this server, or has the scope `admin`.
    Full,
    /// Any directory, or the workspace roots if there are some: the server asks for no token.
    Anonymous,
    /// Directories inside the workspace roots.
    Limited,
}

/// The authenticated caller; an extension of the request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// The name in the audit log.
    pub(crate) name: String,
    /// The directories of the host that it may name.
    workspaces: WorkspaceAccess,
    /// The name of its token, whose open sessions are counted. The user of this server has none.
    token: Option<String>,
    /// Whether it also has the scope `drive`.
    pub(crate) drives: bool,
    /// The `Authorization` header, if its token can be revoked.
    revocable: Option<String>,
}

impl Caller {
    fn new(who: String, trust: CallerTrust, roots: &Arc<[PathBuf]>) -> Self {
        let workspaces = match trust {
            CallerTrust::Full => WorkspaceAccess::Any,
            CallerTrust::Anonymous if roots.is_empty() => WorkspaceAccess::Any,
            CallerTrust::Anonymous | CallerTrust::Limited => WorkspaceAccess::Within(roots.clone()),
        };
        let token = (trust == CallerTrust::Limited).then(|| who.clone());
        Self { name: who, workspaces, token, drives: false, revocable: None }
    }

    /// Notes whether the caller of `request` may drive sessions, and which token a long connection must check again.
    fn with_rights(mut self, state: &AppState, request: &Request) -> Self {
        let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let is_user = request.extensions().get::<Peer>() == Some(&Peer::SameUser);
        self.drives = is_user || state.config.auth.authorize(header, TokenScope::Drive).is_ok();
        let can_be_revoked = !is_user && matches!(state.config.auth, AuthMode::Stored(..));
        self.revocable = header.filter(|_| can_be_revoked).map(str::to_owned);
        self
    }

    /// Returns the caller as the events of a session name it.
    pub(crate) fn description(&self) -> String {
        describe(&self.name)
    }

    /// Returns whether the caller still has `scope`; false after its token was revoked.
    pub(crate) fn is_still_allowed(&self, state: &AppState, scope: TokenScope) -> bool {
        self.revocable.as_deref().is_none_or(|header| state.config.auth.authorize(Some(header), scope).is_ok())
    }

    /// Returns whether the caller may install versions of agents that were not tested, whose content is not pinned.
    pub(crate) fn may_install_any_version(&self) -> bool {
        self.token.is_none()
    }

    /// Returns `options` with the account and user of `request`. Fails for a caller that may not choose who pays.
    pub(crate) fn billing(&self, request: &CreateSession, options: SessionOptions) -> Result<SessionOptions, ApiError> {
        let named = [("account", &request.account), ("user", &request.user)];
        for (field, name) in named.into_iter().filter_map(|(field, name)| Some((field, name.as_ref()?))) {
            if self.token.is_some() {
                let detail = format!("only a caller with the scope `admin` may set `{field}`");
                return Err(ApiError::new(ProblemCode::PermissionDenied, detail));
            }
            let length = name.chars().count();
            if name.trim().is_empty() || length > LONGEST_NAME || name.contains(char::is_control) {
                let detail = format!("invalid `{field}`: 1 to {LONGEST_NAME} characters without control characters");
                return Err(ApiError::new(ProblemCode::InvalidRequest, detail));
            }
        }
        let (account, user) = (request.account.clone(), request.user.clone());
        Ok(SessionOptions { account: account.or(options.account), user: user.or(options.user), ..options })
    }

    /// Returns `options` with the workspace access and the token of this caller.
    pub(crate) fn options(&self, options: &SessionOptions) -> SessionOptions {
        SessionOptions { workspaces: self.workspaces.clone(), token: self.token.clone(), ..options.clone() }
    }
}

/// Returns the scopes of the caller of `request`, and its description; fails if its token is not valid.
pub(crate) fn rights(state: &AppState, request: &Request) -> Result<(String, Vec<TokenScope>), ApiError> {
    if request.extensions().get::<Peer>() == Some(&Peer::SameUser) {
        return Ok((describe(USER), TokenScope::ALL.to_vec()));
    }
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let (mut name, mut held, mut refusal) = (None, Vec::new(), None);
    for scope in TokenScope::ALL {
        match state.config.auth.authorize(header, scope) {
            Ok((who, _)) => {
                held.push(scope);
                name = Some(who);
            }
            Err(refused) => refusal = Some(refused),
        }
    }
    match (name, refusal) {
        (None, Some(refusal)) => Err(refusal),
        (name, _) => Ok((describe(name.as_deref().unwrap_or(ANYBODY)), held)),
    }
}

/// Requires the scope `read`.
pub(crate) async fn require_read(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    check(&state, request, next, TokenScope::Read).await
}

/// Requires the scope `drive`.
pub(crate) async fn require_drive(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    check(&state, request, next, TokenScope::Drive).await
}

/// Requires the scope `answer`.
pub(crate) async fn require_answer(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    check(&state, request, next, TokenScope::Answer).await
}

/// Requires the scope `admin`.
pub(crate) async fn require_admin(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    check(&state, request, next, TokenScope::Admin).await
}

async fn check(state: &AppState, mut request: Request, next: Next, scope: TokenScope) -> Result<Response, ApiError> {
    let (who, trust) = if request.extensions().get::<Peer>() == Some(&Peer::SameUser) {
        (USER.to_owned(), CallerTrust::Full)
    } else {
        let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        state.config.auth.authorize(header, scope)?
    };
    let call = AuditedCall::from_request(&request, who.clone());
    let caller = Caller::new(who, trust, &state.config.workspace_roots).with_rights(state, &request);
    request.extensions_mut().insert(caller);
    let pass = StreamAccess::of(state, &request, scope);
    if !call.may_change() {
        return Ok(pass.end_on_revocation(next.run(request).await));
    }
    let noted = AuditGuard::new(state.audit.clone(), call);
    // If the client disconnects, this future is dropped, but the call still runs to its end and is logged.
    let done = detach_on_drop(&state.running_calls, async move {
        let response = next.run(request).await;
        noted.finish(response.status());
        response
    });
    Ok(pass.end_on_revocation(done.await))
}

/// Ends the streams of a caller whose token is revoked.
struct StreamAccess {
    /// The stored token of the caller. Other tokens cannot be revoked while the server runs.
    revocable: Option<(AppState, String, TokenScope)>,
}

impl StreamAccess {
    fn of(state: &AppState, request: &Request, scope: TokenScope) -> Self {
        let over_tcp = request.extensions().get::<Peer>() != Some(&Peer::SameUser);
        let kept = over_tcp && matches!(state.config.auth, AuthMode::Stored(..));
        let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        Self { revocable: header.filter(|_| kept).map(|header| (state.clone(), header.to_owned(), scope)) }
    }

    /// Ends a stream when its token is no longer valid. The token is checked at every heartbeat.
    fn end_on_revocation(self, response: Response) -> Response {
        let streams = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
        let Some((state, header, scope)) = self.revocable.filter(|_| streams) else { return response };
        let revoked = Box::pin(async move {
            loop {
                tokio::time::sleep(state.config.heartbeat).await;
                if state.config.auth.authorize(Some(&header), scope).is_err() {
                    return;
                }
            }
        });
        response.map(|body| Body::from_stream(body.into_data_stream().take_until(revoked)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auth() -> AuthMode {
        AuthMode::Tokens(vec![
            AccessToken::new("all", [TokenScope::Admin]),
            AccessToken::new("look", [TokenScope::Read]),
        ])
    }

    #[track_caller]
    fn check(header: Option<&str>, scope: TokenScope) -> u16 {
        auth().authorize(header, scope).map_or_else(|error| error.status(), |_| 200)
    }

    #[test]
    fn token_allows_its_scopes() {
        assert_eq!(check(Some("Bearer all"), TokenScope::Answer), 200);
        assert_eq!(check(Some("bearer look"), TokenScope::Read), 200);
        assert_eq!(check(Some("Token look"), TokenScope::Read), 200);
        assert_eq!(check(Some("Bearer look"), TokenScope::Drive), 403);
    }

    #[test]
    fn invalid_tokens_are_rejected() {
        for header in
            [None, Some(""), Some("all"), Some("Bearer"), Some("Bearer "), Some("Basic all"), Some("Bearer al")]
        {
            assert_eq!(check(header, TokenScope::Read), 401, "{header:?}");
        }
    }
}
