//! Search for model credentials on this host: in the environment and in the files of agent programs.
//!
//! Only the gateway uses them. Listings show the provider and the source, never the secret.

use std::path::{Path, PathBuf};

use secret::Secret;
use serde_json::Value;

/// Provider that accepts a credential.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CredentialProvider {
    /// The Anthropic API.
    Anthropic,
    /// The `OpenAI` API.
    Openai,
    /// The Gemini API.
    Gemini,
    /// GitHub, for Copilot.
    Github,
    /// Another provider, by the name in the agent's file.
    Other(String),
}

impl CredentialProvider {
    fn named(name: &str) -> Self {
        match name {
            "anthropic" => Self::Anthropic,
            "openai" => Self::Openai,
            "google" | "gemini" => Self::Gemini,
            "github-copilot" | "github" => Self::Github,
            other => Self::Other(other.to_owned()),
        }
    }

    /// Returns the name for listings.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Openai => "openai",
            Self::Gemini => "gemini",
            Self::Github => "github",
            Self::Other(name) => name,
        }
    }
}

/// Form of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CredentialForm {
    /// API key, which the gateway can use.
    Key,
    /// Login of a person, which only the agent's own program may use.
    Login,
}

/// A credential that was found on this host.
#[derive(Debug, Clone)]
pub(crate) struct FoundCredential {
    pub(crate) provider: CredentialProvider,
    pub(crate) form: CredentialForm,
    /// Place where it was found.
    pub(crate) source: String,
    pub(crate) secret: Secret,
}

const VARIABLES: &[(&str, CredentialProvider, CredentialForm)] = &[
    ("ANTHROPIC_API_KEY", CredentialProvider::Anthropic, CredentialForm::Key),
    ("ANTHROPIC_AUTH_TOKEN", CredentialProvider::Anthropic, CredentialForm::Login),
    ("CLAUDE_CODE_OAUTH_TOKEN", CredentialProvider::Anthropic, CredentialForm::Login),
    ("OPENAI_API_KEY", CredentialProvider::Openai, CredentialForm::Key),
    ("CODEX_API_KEY", CredentialProvider::Openai, CredentialForm::Key),
    ("GEMINI_API_KEY", CredentialProvider::Gemini, CredentialForm::Key),
    ("GOOGLE_API_KEY", CredentialProvider::Gemini, CredentialForm::Key),
    ("COPILOT_GITHUB_TOKEN", CredentialProvider::Github, CredentialForm::Login),
    ("GH_TOKEN", CredentialProvider::Github, CredentialForm::Login),
    ("GITHUB_TOKEN", CredentialProvider::Github, CredentialForm::Login),
];

/// JSON files: path below the home directory, provider, JSON pointer of the secret, form.
const FILES: &[(&str, &str, &str, CredentialForm)] = &[
    (".claude.json", "anthropic", "/primaryApiKey", CredentialForm::Key),
    (".claude/.credentials.json", "anthropic", "/claudeAiOauth/accessToken", CredentialForm::Login),
    (".config/anthropic/configs/default.json", "anthropic", "/api_key", CredentialForm::Key),
    (".codex/auth.json", "openai", "/OPENAI_API_KEY", CredentialForm::Key),
    (".codex/auth.json", "openai", "/tokens/access_token", CredentialForm::Login),
    (".gemini/oauth_creds.json", "gemini", "/access_token", CredentialForm::Login),
    (".qwen/oauth_creds.json", "qwen", "/access_token", CredentialForm::Login),
    (".qwen/settings.json", "qwen", "/security/auth/apiKey", CredentialForm::Key),
];

/// JSON files with one entry for each provider.
const BY_PROVIDER: &[&str] = &[".local/share/opencode/auth.json", ".pi/agent/auth.json", ".pi/agent/oauth.json"];
/// Environment variable with the same JSON.
const BY_PROVIDER_VARIABLE: &str = "OPENCODE_AUTH_CONTENT";
/// File and JSON pointer of Copilot's tokens, one for each user, on a host without a keychain.
const COPILOT: (&str, &str) = (".copilot/config.json", "/copilot_tokens");
/// Env files below the home directory.
const OF_VARIABLES: &[&str] = &[".gemini/.env", ".qwen/.env", ".env"];

/// Returns all credentials, those of the environment first.
pub(super) fn find(variable: impl Fn(&str) -> Option<String>, home: Option<&Path>) -> Vec<FoundCredential> {
    let mut found = Vec::new();
    for (name, provider, form) in VARIABLES {
        found.extend(credential(provider.clone(), *form, format!("environment {name}"), variable(name)));
    }
    let document = variable(BY_PROVIDER_VARIABLE).and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    found.extend(by_provider(&format!("environment {BY_PROVIDER_VARIABLE}"), &document));
    let Some(home) = home else { return found };
    for (path, provider, pointer, form) in FILES {
        let secret = json(&home.join(path)).and_then(|document| text(&document, pointer));
        found.extend(credential(CredentialProvider::named(provider), *form, format!("~/{path}"), secret));
    }
    for path in BY_PROVIDER {
        found.extend(by_provider(&format!("~/{path}"), &json(&home.join(path)).unwrap_or_default()));
    }
    let (path, pointer) = COPILOT;
    let tokens = json(&home.join(path)).and_then(|document| document.pointer(pointer)?.as_object().cloned());
    for token in tokens.iter().flat_map(serde_json::Map::values) {
        let token = token.as_str().map(str::to_owned);
        found.extend(credential(CredentialProvider::Github, CredentialForm::Login, format!("~/{path}"), token));
    }
    for path in OF_VARIABLES {
        let document = std::fs::read_to_string(home.join(path)).unwrap_or_default();
        for (name, provider, form) in VARIABLES {
            let source = format!("~/{path} {name}");
            found.extend(credential(provider.clone(), *form, source, super::env_file::value(&document, name)));
        }
    }
    found
}

fn by_provider(source: &str, document: &Value) -> Vec<FoundCredential> {
    let entries = document.as_object().into_iter().flatten();
    let found = entries.filter_map(|(name, entry)| {
        let (form, secret) = match text(entry, "/key") {
            Some(key) => (CredentialForm::Key, Some(key)),
            None => (CredentialForm::Login, text(entry, "/access")),
        };
        credential(CredentialProvider::named(name), form, source.to_owned(), secret)
    });
    found.collect()
}

fn credential(
    provider: CredentialProvider,
    form: CredentialForm,
    source: String,
    secret: Option<String>,
) -> Option<FoundCredential> {
    let secret = secret.filter(|secret| !secret.trim().is_empty())?;
    Some(FoundCredential { provider, form, source, secret: Secret::new(secret) })
}

fn text(document: &Value, pointer: &str) -> Option<String> {
    document.pointer(pointer)?.as_str().map(str::to_owned)
}

/// Reads a JSON file; `None` if it does not exist or is invalid.
fn json(path: &PathBuf) -> Option<Value> {
    serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_found_in_every_source() {
        let home = tempfile::tempdir().unwrap();
        let write = |path: &str, content: &str| {
            let path = home.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        };
        write(".claude/.credentials.json", r#"{"claudeAiOauth":{"accessToken":"s1"}}"#);
        write(".codex/auth.json", r#"{"OPENAI_API_KEY":"s2","tokens":null}"#);
        write(".local/share/opencode/auth.json", r#"{"google":{"type":"api","key":"s3"},"groq":{"access":"s4"}}"#);
        write(".gemini/.env", "GEMINI_API_KEY='s5'\n");
        write(".qwen/oauth_creds.json", r#"{"access_token":"s7"}"#);
        write(".qwen/.env", "OPENAI_API_KEY=s8\n");
        write(".pi/agent/oauth.json", r#"{"anthropic":{"type":"oauth","access":"s9"}}"#);
        write(".config/anthropic/configs/default.json", r#"{"api_key":"s10"}"#);
        write(".copilot/config.json", r#"{"copilot_tokens":{"https://github.com:me":"s11"}}"#);
        write(".env", "ANTHROPIC_API_KEY=s12\n");
        write(".claude.json", "not json");
        let variable = |name: &str| match name {
            "ANTHROPIC_API_KEY" => Some("s6".to_owned()),
            "OPENAI_API_KEY" => Some(" ".to_owned()),
            "OPENCODE_AUTH_CONTENT" => Some(r#"{"openai":{"key":"s13"}}"#.to_owned()),
            _ => None,
        };
        let found = find(variable, Some(home.path()));
        let shown: Vec<String> =
            found.iter().map(|found| format!("{} {:?} {}", found.provider.name(), found.form, found.source)).collect();
        assert_eq!(
            shown,
            [
                "anthropic Key environment ANTHROPIC_API_KEY",
                "openai Key environment OPENCODE_AUTH_CONTENT",
                "anthropic Login ~/.claude/.credentials.json",
                "anthropic Key ~/.config/anthropic/configs/default.json",
                "openai Key ~/.codex/auth.json",
                "qwen Login ~/.qwen/oauth_creds.json",
                "gemini Key ~/.local/share/opencode/auth.json",
                "groq Login ~/.local/share/opencode/auth.json",
                "anthropic Login ~/.pi/agent/oauth.json",
                "github Login ~/.copilot/config.json",
                "gemini Key ~/.gemini/.env GEMINI_API_KEY",
                "openai Key ~/.qwen/.env OPENAI_API_KEY",
                "anthropic Key ~/.env ANTHROPIC_API_KEY",
            ]
        );
        assert!(!format!("{found:?}").contains("s6"), "a secret can be seen");
    }
}
