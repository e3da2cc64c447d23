//! Who may call what.
//!
//! Only the SHA-256 of a token is kept. A caller over the unix socket has shown who it is by its user id.
//! The token of a session's gateway is none of these: it opens nothing here.

use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::StreamExt;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use protocol::ProblemCode;
use session::{SessionOptions, WorkspaceAccess, detach_on_drop};
use sha2::{Digest, Sha256};
use store::TokenStore;
use subtle::ConstantTimeEq;

use crate::audit::{Call, Noted};
use crate::error::ApiError;
use crate::peer::Peer;
use crate::state::AppState;

/// What a token is good for. Each holds nothing but itself; `Admin` holds all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenScope {
    /// Look at sessions and their events.
    Read,
    /// Make sessions, send messages, interrupt, terminate.
    Drive,
    /// Answer permissions and questions.
    Answer,
    /// Everything.
    Admin,
}

impl TokenScope {
    /// Every scope there is.
    pub const ALL: [Self; 4] = [Self::Read, Self::Drive, Self::Answer, Self::Admin];

    /// As it is typed and kept.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Drive => "drive",
            Self::Answer => "answer",
            Self::Admin => "admin",
        }
    }

    /// Reads what [`Self::as_str`] writes.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == name)
    }
}

/// A token that is recognised, without being known.
#[derive(Clone)]
pub struct AccessToken {
    digest: [u8; 32],
    scopes: Vec<TokenScope>,
}

impl AccessToken {
    /// Recognises `text`, good for `scopes`.
    pub fn new(text: &str, scopes: impl Into<Vec<TokenScope>>) -> Self {
        Self { digest: Sha256::digest(text).into(), scopes: scopes.into() }
    }

    /// Recognises the token with this SHA-256.
    pub fn from_digest(digest: [u8; 32], scopes: impl Into<Vec<TokenScope>>) -> Self {
        Self { digest, scopes: scopes.into() }
    }

    fn is(&self, digest: &[u8; 32]) -> bool {
        self.digest.ct_eq(digest).into()
    }

    fn covers(&self, scope: TokenScope) -> bool {
        self.scopes.iter().any(|held| *held == scope || *held == TokenScope::Admin)
    }
}

impl std::fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("scopes", &self.scopes).finish_non_exhaustive()
    }
}

/// How callers over TCP show who they are.
#[derive(Debug, Clone)]
pub enum AuthMode {
    /// They need not; only where nobody else can connect.
    None,
    /// By one of these tokens.
    Tokens(Vec<AccessToken>),
    /// By one of these, or by one that is kept in the data directory: made and revoked while the server runs.
    Stored(Vec<AccessToken>, Arc<TokenStore>),
}

impl AuthMode {
    /// Whether a caller that presents `header` may do what `scope` covers; who it is, and whether it may do everything.
    fn admits(&self, header: Option<&str>, scope: TokenScope) -> Result<(String, Trust), ApiError> {
        let fixed = match self {
            // Every process of the machine can be this caller, of whichever user.
            Self::None => return Ok(("anybody".to_owned(), Trust::Unasked)),
            Self::Tokens(fixed) | Self::Stored(fixed, _) => fixed,
        };
        let presented =
            header.and_then(credential).ok_or_else(|| ApiError::new(ProblemCode::TokenInvalid, "no token was sent"))?;
        let digest: [u8; 32] = Sha256::digest(presented).into();
        // Every token is looked at, so that the time tells nothing about which one came close.
        let mut found = None;
        for token in fixed {
            if token.is(&digest) {
                found = Some(token.clone());
            }
        }
        let (who, token) = match found {
            Some(token) => ("the server's own token".to_owned(), token),
            None => self.kept(&digest)?,
        };
        if token.covers(scope) {
            let trust = if token.covers(TokenScope::Admin) { Trust::Whole } else { Trust::Bounded };
            return Ok((who, trust));
        }
        Err(ApiError::new(ProblemCode::PermissionDenied, format!("the token is not good for `{}`", scope.as_str())))
    }

    fn kept(&self, digest: &[u8; 32]) -> Result<(String, AccessToken), ApiError> {
        let Self::Stored(_, tokens) = self else { return Err(unknown_token()) };
        let found = tokens.find(digest).map_err(|error| {
            tracing::error!(%error, "cannot look up a token");
            ApiError::new(ProblemCode::Internal, "the tokens cannot be read")
        })?;
        let record = found.ok_or_else(unknown_token)?;
        let scopes: Vec<TokenScope> = record.scopes.iter().filter_map(|scope| TokenScope::from_name(scope)).collect();
        Ok((record.id, AccessToken::from_digest(*digest, scopes)))
    }
}

fn unknown_token() -> ApiError {
    ApiError::new(ProblemCode::TokenInvalid, "the token opens nothing here")
}

/// The token in an `Authorization` header.
fn credential(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    let known = scheme.eq_ignore_ascii_case("bearer") || scheme.eq_ignore_ascii_case("token");
    known.then(|| token.trim()).filter(|token| !token.is_empty())
}

/// With what of the host a caller is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// With what its user may reach: it is the user of this server, or shows a token of the scope `admin`.
    Whole,
    /// With the same, as long as nothing in particular was opened to callers: nobody is asked for a token, so whoever
    /// can call may do everything.
    Unasked,
    /// With what was opened to callers.
    Bounded,
}

/// Who was let in; an extension of the request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// As it stands in the audit log.
    pub(crate) who: String,
    /// The directories of the host it may name.
    workspaces: WorkspaceAccess,
}

impl Caller {
    fn new(who: String, trust: Trust, roots: &Arc<[PathBuf]>) -> Self {
        let workspaces = match trust {
            Trust::Whole => WorkspaceAccess::Any,
            Trust::Unasked if roots.is_empty() => WorkspaceAccess::Any,
            Trust::Unasked | Trust::Bounded => WorkspaceAccess::Within(roots.clone()),
        };
        Self { who, workspaces }
    }

    /// How sessions of this caller are made.
    pub(crate) fn options(&self, options: &SessionOptions) -> SessionOptions {
        SessionOptions { workspaces: self.workspaces.clone(), ..options.clone() }
    }
}

/// Lets through who may look.
pub(crate) async fn may_read(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    check(&state, request, next, TokenScope::Read).await
}

/// Lets through who may drive.
pub(crate) async fn may_drive(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    check(&state, request, next, TokenScope::Drive).await
}

/// Lets through who may answer.
pub(crate) async fn may_answer(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    check(&state, request, next, TokenScope::Answer).await
}

/// Lets through who may do everything.
pub(crate) async fn may_administer(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    check(&state, request, next, TokenScope::Admin).await
}

async fn check(state: &AppState, mut request: Request, next: Next, scope: TokenScope) -> Result<Response, ApiError> {
    let (who, trust) = if request.extensions().get::<Peer>() == Some(&Peer::SameUser) {
        ("the user of this server".to_owned(), Trust::Whole)
    } else {
        let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        state.config.auth.admits(header, scope)?
    };
    let call = Call::of(&request, who.clone());
    request.extensions_mut().insert(Caller::new(who, trust, &state.config.workspace_roots));
    let pass = Pass::of(state, &request, scope);
    if !call.changes() {
        return Ok(pass.hold(next.run(request).await));
    }
    let noted = Noted::new(state.audit.clone(), call);
    // A client that leaves drops what waits for the answer, and what was begun is done to its end and noted all the same.
    let done = detach_on_drop(&state.changing, async move {
        let response = next.run(request).await;
        noted.answered(response.status());
        response
    });
    Ok(pass.hold(done.await))
}

/// What let a caller in, as long as it does.
struct Pass {
    /// A token that can be taken back while a stream runs; none of the others can.
    revocable: Option<(AppState, String, TokenScope)>,
}

impl Pass {
    fn of(state: &AppState, request: &Request, scope: TokenScope) -> Self {
        let over_tcp = request.extensions().get::<Peer>() != Some(&Peer::SameUser);
        let kept = over_tcp && matches!(state.config.auth, AuthMode::Stored(..));
        let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        Self { revocable: header.filter(|_| kept).map(|header| (state.clone(), header.to_owned(), scope)) }
    }

    /// Ends a stream when the token that opened it is no longer good: it is looked at as often as there is a sign of life.
    fn hold(self, response: Response) -> Response {
        let streams = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
        let Some((state, header, scope)) = self.revocable.filter(|_| streams) else { return response };
        let revoked = Box::pin(async move {
            loop {
                tokio::time::sleep(state.config.heartbeat).await;
                if state.config.auth.admits(Some(&header), scope).is_err() {
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
        auth().admits(header, scope).map_or_else(|error| error.status(), |_| 200)
    }

    #[test]
    fn a_token_opens_what_it_is_good_for() {
        assert_eq!(check(Some("Bearer all"), TokenScope::Answer), 200);
        assert_eq!(check(Some("bearer look"), TokenScope::Read), 200);
        assert_eq!(check(Some("Token look"), TokenScope::Read), 200);
        assert_eq!(check(Some("Bearer look"), TokenScope::Drive), 403);
    }

    #[test]
    fn anything_else_opens_nothing() {
        for header in
            [None, Some(""), Some("all"), Some("Bearer"), Some("Bearer "), Some("Basic all"), Some("Bearer al")]
        {
            assert_eq!(check(header, TokenScope::Read), 401, "{header:?}");
        }
    }
}
