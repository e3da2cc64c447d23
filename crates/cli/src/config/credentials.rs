//! Credentials that are on this host already: in the environment, and in files of the agents' own programs.
//!
//! They are read here and used by the gateway alone. What is shown of one is whose it is and where it was found.

use std::path::{Path, PathBuf};

use secret::Secret;
use serde_json::Value;

/// Whose API a credential opens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Provider {
    /// The Anthropic API.
    Anthropic,
    /// The `OpenAI` API.
    Openai,
    /// The Gemini API.
    Gemini,
    /// GitHub, for Copilot.
    Github,
    /// One that only a program of its own knows, by the name it has there.
    Other(String),
}

impl Provider {
    fn named(name: &str) -> Self {
        match name {
            "anthropic" => Self::Anthropic,
            "openai" => Self::Openai,
            "google" | "gemini" => Self::Gemini,
            "github-copilot" | "github" => Self::Github,
            other => Self::Other(other.to_owned()),
        }
    }

    /// As it is shown.
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

/// What sort of credential it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    /// A key of the API, which the gateway can use.
    Key,
    /// A person's login, which belongs to the program that made it.
    Login,
}

/// One credential.
#[derive(Debug, Clone)]
pub(crate) struct Credential {
    pub(crate) provider: Provider,
    pub(crate) form: Form,
    /// Where it was found, for a person.
    pub(crate) source: String,
    pub(crate) secret: Secret,
}

const VARIABLES: &[(&str, Provider, Form)] = &[
    ("ANTHROPIC_API_KEY", Provider::Anthropic, Form::Key),
    ("ANTHROPIC_AUTH_TOKEN", Provider::Anthropic, Form::Login),
    ("CLAUDE_CODE_OAUTH_TOKEN", Provider::Anthropic, Form::Login),
    ("OPENAI_API_KEY", Provider::Openai, Form::Key),
    ("CODEX_API_KEY", Provider::Openai, Form::Key),
    ("GEMINI_API_KEY", Provider::Gemini, Form::Key),
    ("GOOGLE_API_KEY", Provider::Gemini, Form::Key),
    ("COPILOT_GITHUB_TOKEN", Provider::Github, Form::Login),
    ("GH_TOKEN", Provider::Github, Form::Login),
    ("GITHUB_TOKEN", Provider::Github, Form::Login),
];

/// Files of one shape: their path below the home, whose they are, where in the JSON the secret is.
const FILES: &[(&str, Provider, &str, Form)] = &[
    (".claude.json", Provider::Anthropic, "/primaryApiKey", Form::Key),
    (".claude/.credentials.json", Provider::Anthropic, "/claudeAiOauth/accessToken", Form::Login),
    (".codex/auth.json", Provider::Openai, "/OPENAI_API_KEY", Form::Key),
    (".codex/auth.json", Provider::Openai, "/tokens/access_token", Form::Login),
    (".gemini/oauth_creds.json", Provider::Gemini, "/access_token", Form::Login),
];

/// Files that hold one entry a provider.
const BY_PROVIDER: &[&str] = &[".local/share/opencode/auth.json", ".pi/agent/auth.json"];
/// Files of variables.
const OF_VARIABLES: &[&str] = &[".gemini/.env"];

/// Every credential there is, those of the environment first.
pub(super) fn find(variable: impl Fn(&str) -> Option<String>, home: Option<&Path>) -> Vec<Credential> {
    let mut found = Vec::new();
    for (name, provider, form) in VARIABLES {
        found.extend(credential(provider.clone(), *form, format!("environment {name}"), variable(name)));
    }
    let Some(home) = home else { return found };
    for (path, provider, pointer, form) in FILES {
        let secret = json(&home.join(path)).and_then(|document| text(&document, pointer));
        found.extend(credential(provider.clone(), *form, format!("~/{path}"), secret));
    }
    for path in BY_PROVIDER {
        found.extend(by_provider(path, &json(&home.join(path)).unwrap_or_default()));
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

fn by_provider(path: &str, document: &Value) -> Vec<Credential> {
    let entries = document.as_object().into_iter().flatten();
    let found = entries.filter_map(|(name, entry)| {
        let (form, secret) = match text(entry, "/key") {
            Some(key) => (Form::Key, Some(key)),
            None => (Form::Login, text(entry, "/access")),
        };
        credential(Provider::named(name), form, format!("~/{path}"), secret)
    });
    found.collect()
}

fn credential(provider: Provider, form: Form, source: String, secret: Option<String>) -> Option<Credential> {
    let secret = secret.filter(|secret| !secret.trim().is_empty())?;
    Some(Credential { provider, form, source, secret: Secret::new(secret) })
}

fn text(document: &Value, pointer: &str) -> Option<String> {
    document.pointer(pointer)?.as_str().map(str::to_owned)
}

/// A file that is not there, or is no JSON, holds no credential.
fn json(path: &PathBuf) -> Option<Value> {
    serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_looked_at() {
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
        write(".claude.json", "not json");
        let variable = |name: &str| match name {
            "ANTHROPIC_API_KEY" => Some("s6".to_owned()),
            "OPENAI_API_KEY" => Some(" ".to_owned()),
            _ => None,
        };
        let found = find(variable, Some(home.path()));
        let shown: Vec<String> =
            found.iter().map(|found| format!("{} {:?} {}", found.provider.name(), found.form, found.source)).collect();
        assert_eq!(
            shown,
            [
                "anthropic Key environment ANTHROPIC_API_KEY",
                "anthropic Login ~/.claude/.credentials.json",
                "openai Key ~/.codex/auth.json",
                "gemini Key ~/.local/share/opencode/auth.json",
                "groq Login ~/.local/share/opencode/auth.json",
                "gemini Key ~/.gemini/.env GEMINI_API_KEY",
            ]
        );
        assert!(!format!("{found:?}").contains("s6"), "a secret can be seen");
    }
}
