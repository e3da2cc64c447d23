//! The notice at the start of a run: the model in use, and how to use a real one instead of the script.

use crate::config::{self, Config, CredentialForm, CredentialProvider, FoundCredential, UpstreamKind};

/// Description of the scripted model.
const SCRIPT: &str = "built-in script, no real model";

/// Notice about the model.
pub(crate) struct ModelNotice {
    /// Short description on the session's line.
    pub(crate) model: String,
    /// Lines below it.
    pub(crate) hints: Vec<String>,
}

impl ModelNotice {
    /// Returns the notice for a session in this process; `named` is its `--upstream`.
    pub(crate) fn local(config: &Config, named: Option<&str>, agent: &str) -> Self {
        let section = config.file.agents.by_name.get(agent).filter(|_| config.env_upstream.is_none());
        let of_agent = section.and_then(|section| section.upstream.as_deref());
        let default = config.file.model.upstream.as_deref().filter(|_| config.env_upstream.is_none());
        let configured = named.or(of_agent).or(default);
        let model =
            section.and_then(|section| section.model.as_deref()).filter(|_| named.is_none() || named == of_agent);
        let mut hints = Vec::new();
        if let Some(missing) = config::missing_variable().filter(|_| named.is_none() && config.env_upstream.is_none()) {
            hints.push(format!("the environment describes no model server: {missing} is not set"));
        }
        let model = match (configured, &config.env_upstream) {
            (Some(name), _) if kind(config, name) != Some(UpstreamKind::Scripted) => {
                model.map_or_else(|| format!("upstream {name}"), |model| format!("{model} of upstream {name}"))
            }
            (None, Some(found)) => {
                let word = |text: &Option<String>| text.clone().unwrap_or_default();
                format!("{} at {} ({})", word(&found.section.model), word(&found.section.base_url), found.name)
            }
            _ => {
                // The mock agent is made for the script.
                if agent != "mock" {
                    hints.extend(real_model_hints(config, agent, &config::credentials()));
                }
                SCRIPT.to_owned()
            }
        };
        Self { model, hints }
    }

    /// Returns the notice for a session in the server.
    pub(crate) fn remote(named: Option<&str>) -> Self {
        let model = named.map_or_else(|| "the server's own".to_owned(), |name| format!("upstream {name}"));
        Self { model, hints: Vec::new() }
    }
}

fn kind(config: &Config, name: &str) -> Option<UpstreamKind> {
    config.file.upstreams.get(name).map(|section| section.kind)
}

/// Returns the steps to a real model.
fn real_model_hints(config: &Config, agent: &str, found: &[FoundCredential]) -> Vec<String> {
    let mut hints = vec!["to use a real model: viv setup".to_owned()];
    let mut keys = found.iter().filter(|found| found.form == CredentialForm::Key && word(&found.provider).is_some());
    // Prefer the agent's own vendor.
    let own = keys.clone().find(|found| word(&found.provider) == vendor_of(agent));
    let Some(key) = own.or_else(|| keys.next()) else { return hints };
    let Some(word) = word(&key.provider) else { return hints };
    if config.file.upstreams.contains_key(word) {
        hints.push(format!("to use the configured upstream: viv run --upstream={word} {agent} PROMPT"));
    } else if config.file.model.script.is_none() && config.file.model.upstream.is_none() {
        hints.push(format!(
            "found a key for {word} ({}); to let the gateway use it, outside the sandbox, run:",
            key.source
        ));
        hints.push(format!("viv setup --upstream {word} --yes"));
    }
    hints
}

/// Returns the upstream kind of a provider; `None` if the gateway cannot use its keys.
fn word(provider: &CredentialProvider) -> Option<&'static str> {
    match provider {
        CredentialProvider::Anthropic => Some("anthropic"),
        CredentialProvider::Openai => Some("openai"),
        CredentialProvider::Gemini => Some("gemini"),
        CredentialProvider::Github | CredentialProvider::Other(_) => None,
    }
}

fn vendor_of(agent: &str) -> Option<&'static str> {
    match agent {
        "claude" => Some("anthropic"),
        "codex" => Some("openai"),
        "gemini" => Some("gemini"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use secret::Secret;

    use super::*;
    use crate::config::ConfigFile;

    fn config(text: &str) -> Config {
        let file: ConfigFile = toml::from_str(text).unwrap();
        let (data_dir, organisation_policy) = ("/data".into(), "/etc/viv/policy.yaml".into());
        Config {
            data_dir,
            organisation_policy,
            file,
            env_upstream: None,
            backend: None,
            packages: crate::packages::PackageFinder::default(),
            runtime_dir: None,
        }
    }

    fn key(provider: CredentialProvider) -> FoundCredential {
        let (source, secret) = ("environment".to_owned(), Secret::new("sk-never-shown"));
        FoundCredential { provider, form: CredentialForm::Key, source, secret }
    }

    #[test]
    fn a_found_key_comes_with_the_command_that_configures_it() {
        let found = [key(CredentialProvider::Openai), key(CredentialProvider::Anthropic)];
        let hints = real_model_hints(&config(""), "claude", &found).join("\n");
        assert!(hints.contains("found a key for anthropic (environment)"), "{hints}");
        assert!(!hints.contains("sk-never-shown"), "{hints}");
        assert_eq!(hints.lines().last(), Some("viv setup --upstream anthropic --yes"));
    }

    #[test]
    fn a_configured_upstream_is_named() {
        let config = config("[upstreams.openai]\nkind = \"openai\"\nkey_found = true\n");
        let hints = real_model_hints(&config, "claude", &[key(CredentialProvider::Openai)]);
        assert_eq!(hints[1], "to use the configured upstream: viv run --upstream=openai claude PROMPT");
        assert_eq!(real_model_hints(&config, "claude", &[]).len(), 1);
    }
}
