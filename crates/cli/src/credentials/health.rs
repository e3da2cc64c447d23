//! Check of an API key with one small call to its vendor.

use bytes::Bytes;
use gateway::{ModelEndpoint, SendProgress, Upstream, UpstreamRequest, VendorConfig, VendorUpstream};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method};
use protocol::{CallId, SessionId};
use serde_json::json;

use crate::config::{Config, CredentialForm, CredentialProvider, FoundCredential, UpstreamKind};
use crate::upstream;

/// Result of checking a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CredentialHealth {
    /// The vendor accepted the key.
    Good,
    /// The vendor rejected the key with this status.
    Invalid(u16),
    /// The vendor could not be reached, or its answer says nothing about the key.
    Unreachable(String),
}

impl CredentialHealth {
    /// Returns the result as a word for programs.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Invalid(_) => "invalid",
            Self::Unreachable(_) => "unreachable",
        }
    }

    pub(super) fn detail(&self) -> Option<String> {
        match self {
            Self::Good => None,
            Self::Invalid(status) => Some(format!("answered {status}")),
            Self::Unreachable(why) => Some(why.clone()),
        }
    }

    /// Returns the result with its detail for a person.
    pub(super) fn text(&self) -> String {
        let detail = self.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        format!("{}{detail}", self.word())
    }
}

/// Returns the kind of upstream that uses keys of `provider`.
pub(super) fn kind(provider: &CredentialProvider) -> Option<UpstreamKind> {
    match provider {
        CredentialProvider::Anthropic => Some(UpstreamKind::Anthropic),
        CredentialProvider::Openai => Some(UpstreamKind::Openai),
        CredentialProvider::Gemini => Some(UpstreamKind::Gemini),
        CredentialProvider::Github | CredentialProvider::Other(_) => None,
    }
}

/// Checks an API key at the configured address of its vendor, or else at the vendor's own. `None` for logins.
pub(super) async fn check(config: &Config, credential: &FoundCredential) -> Option<CredentialHealth> {
    let kind = kind(&credential.provider).filter(|_| credential.form == CredentialForm::Key)?;
    let (vendor, default_address) = upstream::vendor(kind)?;
    let configured = config.file.upstreams.values().find(|section| section.kind == kind);
    let address = configured.and_then(|section| section.base_url.as_deref()).or(default_address)?;
    let key = Some(credential.secret.clone());
    let vendor = VendorConfig { key, retries: 0, ..VendorConfig::new(credential.provider.name(), vendor, address) };
    Some(match VendorUpstream::new(vendor) {
        Ok(vendor) => ask(&vendor, kind).await,
        Err(error) => CredentialHealth::Unreachable(error.to_string()),
    })
}

async fn ask(vendor: &VendorUpstream, kind: UpstreamKind) -> CredentialHealth {
    let Some(request) = request(kind) else {
        return CredentialHealth::Unreachable("no test call for this kind".to_owned());
    };
    match vendor.send(request).await {
        Ok(answer) if answer.status.is_success() => CredentialHealth::Good,
        Ok(answer) if matches!(answer.status.as_u16(), 401 | 403) => CredentialHealth::Invalid(answer.status.as_u16()),
        Ok(answer) => CredentialHealth::Unreachable(format!("answered {}", answer.status.as_u16())),
        Err(error) => CredentialHealth::Unreachable(error.to_string()),
    }
}

/// Returns the cheapest call: token counting where that is free, else one output token.
fn request(kind: UpstreamKind) -> Option<UpstreamRequest> {
    let hi = json!([{"role": "user", "content": "hi"}]);
    let (endpoint, path, model, body) = match kind {
        UpstreamKind::Anthropic => {
            let model = "claude-haiku-4-5";
            let body = json!({"model": model, "messages": hi});
            (ModelEndpoint::CountTokens, "/v1/messages/count_tokens".to_owned(), model, body)
        }
        UpstreamKind::Openai => {
            let model = "gpt-5-nano";
            let body = json!({"model": model, "messages": hi, "max_completion_tokens": 1});
            (ModelEndpoint::ChatCompletions, "/v1/chat/completions".to_owned(), model, body)
        }
        UpstreamKind::Gemini => {
            let model = "gemini-2.5-flash-lite";
            let contents = json!([{"role": "user", "parts": [{"text": "hi"}]}]);
            let body = json!({"contents": contents, "generationConfig": {"maxOutputTokens": 1}});
            (ModelEndpoint::GenerateContent, format!("/v1beta/models/{model}:generateContent"), model, body)
        }
        _ => return None,
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    Some(UpstreamRequest {
        endpoint,
        method: Method::POST,
        path_and_query: path,
        headers,
        body: Bytes::from(body.to_string()),
        model: model.to_owned(),
        stream: false,
        call: CallId::new("call_credentials").ok()?,
        session: SessionId::new("credentials").ok()?,
        account: "credentials".into(),
        run: "health".into(),
        attempt: 1,
        user: None,
        progress: SendProgress::default(),
    })
}
