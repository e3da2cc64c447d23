//! The offer of `viv run` to use a key of this host, if no model is configured.

use super::{SetupPlan, VENDORS, Vendor, usable};
use crate::config::{self, Config, FoundCredential};
use crate::failure::Failure;
use crate::output::message;
use crate::prompter;

/// Asks on the terminal whether `agent` shall use the key of its own vendor, if there is one and no model is configured.
/// Returns the configuration to use; fails if the test call with the key fails.
pub(crate) async fn offer(config: Config, agent: &str) -> Result<Config, Failure> {
    let Some((vendor, key)) = offered(&config, agent, usable(&config::credentials())) else { return Ok(config) };
    message!("no model is configured; found a key for {} ({})", vendor.word, key.source);
    message!("the gateway would use the key, outside the sandbox, and meter every call");
    let answer = prompter::ask_choice("use it from now on? [y]es · [n]o: ", &["y", "yes", "n", "no"]).await;
    if !matches!(answer.as_str(), "y" | "yes") {
        return Ok(config);
    }
    let plan = SetupPlan {
        upstream: vendor.word.to_owned(),
        kind: vendor.word,
        base_url: None,
        key_env: None,
        key_found: true,
        source: key.source,
        model: None,
        agents: vec![agent.to_owned()],
    };
    plan.carry_out(&config, true).await?;
    let changed = Config::read(Some(config.data_dir.clone()))?;
    Ok(Config { file: changed.file, ..config })
}

/// Returns the key of the agent's own vendor; `None` if a model is configured.
fn offered(
    config: &Config,
    agent: &str,
    found: Vec<(&'static Vendor, FoundCredential)>,
) -> Option<(&'static Vendor, FoundCredential)> {
    let file = &config.file;
    let is_configured = config.env_upstream.is_some()
        || file.model.upstream.is_some()
        || file.model.script.is_some()
        || file.agents.by_name.get(agent).is_some_and(|section| section.upstream.is_some());
    let own = VENDORS.iter().find(|vendor| vendor.agents.contains(&agent)).filter(|_| !is_configured)?;
    found.into_iter().find(|(vendor, _)| vendor.word == own.word)
}

#[cfg(test)]
mod tests {
    use secret::Secret;

    use super::*;
    use crate::config::{ConfigFile, CredentialForm, CredentialProvider};

    fn is_offered(text: &str, agent: &str) -> bool {
        let file: ConfigFile = toml::from_str(text).unwrap();
        let (data_dir, organisation_policy) = ("/data".into(), "/etc/viv/policy.yaml".into());
        let config = Config {
            data_dir,
            organisation_policy,
            file,
            env_upstream: None,
            backend: None,
            packages: crate::packages::PackageFinder::default(),
            runtime_dir: None,
        };
        let (source, secret) = ("environment".to_owned(), Secret::new("sk-never-shown"));
        let key =
            FoundCredential { provider: CredentialProvider::Anthropic, form: CredentialForm::Key, source, secret };
        offered(&config, agent, usable(&[key])).is_some()
    }

    #[test]
    fn key_is_offered_to_the_agent_of_its_vendor_until_a_model_is_configured() {
        assert!(is_offered("", "claude"));
        assert!(!is_offered("", "codex") && !is_offered("", "mock"));
        assert!(!is_offered("[model]\nupstream = \"a\"\n", "claude"));
        assert!(!is_offered("[model]\nscript = \"a.yaml\"\n", "claude"));
        assert!(!is_offered("[agents.claude]\nupstream = \"a\"\n", "claude"));
        assert!(is_offered("[agents.codex]\nupstream = \"a\"\n", "claude"));
    }
}
