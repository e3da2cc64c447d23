//! `viv setup`: choose a key and a model, make one test call through the gateway, write `viv.toml`.
//!
//! The file is written only after the test call was answered. On a terminal the command asks; without one it needs `--yes`
//! and takes its choices from flags. A key is never printed
//! and never written to `viv.toml`: the file names the place where the key was found.

mod offer;
mod test_call;

use std::process::ExitCode;

use clap::Args;
use protocol::ProblemCode;
use serde_json::json;

use crate::config::{self, Config, ConfigEditor, CredentialForm, FoundCredential, UpstreamKind};
use crate::failure::Failure;
use crate::output::{self, message};
use crate::{host, prompter};

pub(crate) use offer::offer;

/// The upstreams that `viv setup` can write: kind, name in `viv.toml`, variable with the key, model of the test call.
const VENDORS: &[Vendor] = &[
    Vendor { kind: UpstreamKind::Anthropic, word: "anthropic", model: "claude-haiku-4-5", agents: &["claude"] },
    Vendor { kind: UpstreamKind::Openai, word: "openai", model: "gpt-5-nano", agents: &["codex"] },
    Vendor { kind: UpstreamKind::Gemini, word: "gemini", model: "gemini-2.5-flash-lite", agents: &["gemini"] },
];

/// A vendor with its own API.
struct Vendor {
    kind: UpstreamKind,
    word: &'static str,
    /// Cheap model for the test call.
    model: &'static str,
    /// Agents that speak this API themselves.
    agents: &'static [&'static str],
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  viv setup
  viv setup --upstream anthropic --yes
  viv setup --upstream local --base-url http://127.0.0.1:8000/v1 --model my-model --yes")]
pub(crate) struct SetupArguments {
    /// Upstream to configure: anthropic, openai, gemini, or a name of yours together with `--base-url`
    #[arg(long, value_name = "NAME")]
    upstream: Option<String>,
    /// Base URL of a server with the chat completions API
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Environment variable with the key [default: the key that `viv credentials` finds]
    #[arg(long, value_name = "VARIABLE")]
    key_env: Option<String>,
    /// Model of the agents [default: each agent's own choice]
    #[arg(long)]
    model: Option<String>,
    /// Configure only these agents [default: those that speak the upstream's API; all if there are none]
    #[arg(long = "agent", value_name = "AGENT")]
    agents: Vec<String>,
    /// Do not make the test call
    #[arg(long)]
    no_test: bool,
    /// Ask nothing
    #[arg(long)]
    yes: bool,
}

/// The settings that `viv setup` writes.
struct SetupPlan {
    upstream: String,
    kind: &'static str,
    base_url: Option<String>,
    key_env: Option<String>,
    key_found: bool,
    /// Place of the key, for messages.
    source: String,
    model: Option<String>,
    agents: Vec<String>,
}

/// Runs `viv setup`.
pub(crate) fn carry_out(arguments: SetupArguments, config: Config, json: bool) -> Result<ExitCode, Failure> {
    let (test, yes) = (!arguments.no_test, arguments.yes);
    let asks = !yes && output::stdin_is_terminal() && output::stderr_is_terminal();
    if !asks && !yes {
        let what = "`viv setup` needs a terminal to ask on, or `--yes`";
        return Err(Failure::new(ProblemCode::NoTerminal, what).help("viv setup --yes"));
    }
    let plan = host::on_runtime(SetupPlan::choose(arguments, asks))?;
    host::on_runtime(plan.carry_out(&config, test))?;
    if json {
        output::print_json(
            &json!({"upstream": plan.upstream, "kind": plan.kind, "model": plan.model, "agents": plan.agents}),
        )?;
    }
    message!("next: viv run {} \"explain this project\"", plan.agents.first().map_or("claude", String::as_str));
    Ok(ExitCode::SUCCESS)
}

impl SetupPlan {
    async fn choose(arguments: SetupArguments, asks: bool) -> Result<Self, Failure> {
        check_agents(&arguments.agents)?;
        if let Some(base_url) = arguments.base_url.clone() {
            return Self::server(arguments, base_url);
        }
        let found = usable(&config::credentials());
        let vendor = match &arguments.upstream {
            Some(word) => named_vendor(word)?,
            None if asks && found.len() > 1 => ask_vendor(&found).await?,
            None => found.first().map(|(vendor, _)| *vendor).ok_or_else(nothing_found)?,
        };
        let source = found.iter().find(|(found, _)| found.word == vendor.word).map(|(_, found)| found.source.clone());
        let (key_found, source) = match (&arguments.key_env, source) {
            (Some(variable), _) => (false, format!("environment {variable}")),
            (None, Some(source)) => (true, source),
            (None, None) => return Err(no_key(vendor)),
        };
        if let Some(variable) = &arguments.key_env {
            check_variable(variable)?;
        }
        if asks {
            let question = "use this upstream for agents? [y]es · [n]o: ";
            message!("found a key for {} ({source}); the key stays outside the sandbox", vendor.word);
            if !matches!(prompter::ask_choice(question, &["y", "yes", "n", "no"]).await.as_str(), "y" | "yes") {
                return Err(Failure::new(ProblemCode::InvalidRequest, "nothing was changed").help("viv setup"));
            }
        }
        Ok(Self {
            upstream: vendor.word.to_owned(),
            kind: vendor.word,
            base_url: None,
            key_env: arguments.key_env,
            key_found,
            source,
            model: arguments.model,
            agents: chosen_agents(arguments.agents, vendor.agents),
        })
    }

    /// Returns the plan for a server with the chat completions API.
    fn server(arguments: SetupArguments, base_url: String) -> Result<Self, Failure> {
        if arguments.model.is_none() {
            let what = "`--base-url` needs `--model`: the server's models are not known";
            let help =
                format!("viv setup --base-url {} --model my-model --yes", crate::shell_word::shell_word(&base_url));
            return Err(Failure::new(ProblemCode::InvalidRequest, what).help(help));
        }
        arguments.key_env.as_deref().map_or(Ok(()), check_variable)?;
        let source =
            arguments.key_env.as_ref().map_or_else(|| "nobody".to_owned(), |name| format!("environment {name}"));
        let upstream = arguments.upstream.unwrap_or_else(|| "local".to_owned());
        let (base_url, key_env) = (Some(base_url), arguments.key_env);
        let agents = chosen_agents(arguments.agents, &[]);
        Ok(Self {
            upstream,
            kind: "openai-compatible",
            base_url,
            key_env,
            key_found: false,
            source,
            model: arguments.model,
            agents,
        })
    }

    /// Makes the test call, unless `test` is false, then writes `viv.toml`. A failed call changes nothing.
    async fn carry_out(&self, config: &Config, test: bool) -> Result<(), Failure> {
        let editor = self.edit(config)?;
        if test {
            let changed = Config { file: editor.preview()?, ..config.clone() };
            let model = self.test_model();
            message!("making one test call to {model} through the gateway …");
            let answered = test_call::make(&changed, &self.upstream, self.kind, &model).await?;
            message!("the model {model} answered with status {answered}");
        }
        editor.save()?;
        let untested = if test { "" } else { " (not tested)" };
        message!("viv.toml now uses upstream {} with the key of {}{untested}", self.upstream, self.source);
        Ok(())
    }

    /// Returns the model of the test call.
    fn test_model(&self) -> String {
        let cheap = VENDORS.iter().find(|vendor| vendor.word == self.kind).map(|vendor| vendor.model);
        self.model.clone().or_else(|| cheap.map(str::to_owned)).unwrap_or_default()
    }

    /// Returns `viv.toml` with the plan, not written yet. Other keys of the file stay as they are.
    fn edit(&self, config: &Config) -> Result<ConfigEditor, Failure> {
        host::data_dir(config)?;
        let mut editor = ConfigEditor::open(config.data_dir.join("viv.toml"))?;
        let at = |key: &str| ["upstreams".to_owned(), self.upstream.clone(), key.to_owned()];
        let mut set = |segments: &[String], value: &str| match config::find_key(segments) {
            Some(key) => editor.set(&key, value),
            None => Ok(()),
        };
        set(&at("kind"), self.kind)?;
        if let Some(base_url) = &self.base_url {
            set(&at("base_url"), base_url)?;
        }
        match &self.key_env {
            Some(variable) => set(&at("key_env"), variable)?,
            None if self.key_found => set(&at("key_found"), "true")?,
            None => {}
        }
        if let (Some(model), None) = (&self.model, VENDORS.iter().find(|vendor| vendor.word == self.kind)) {
            set(&at("model"), model)?;
        }
        set(&["model".to_owned(), "upstream".to_owned()], &self.upstream)?;
        for agent in &self.agents {
            let of_agent = |key: &str| ["agents".to_owned(), agent.clone(), key.to_owned()];
            set(&of_agent("upstream"), &self.upstream)?;
            if let Some(model) = &self.model {
                set(&of_agent("model"), model)?;
            }
        }
        if self.key_env.is_some() {
            editor.unset(&at("key_found"));
        } else if self.key_found {
            editor.unset(&at("key_env"));
        }
        Ok(editor)
    }
}

/// Returns the keys that the gateway can use, with their vendors.
fn usable(found: &[FoundCredential]) -> Vec<(&'static Vendor, FoundCredential)> {
    let keys = found.iter().filter(|found| found.form == CredentialForm::Key);
    let mut usable: Vec<(&Vendor, FoundCredential)> = Vec::new();
    for key in keys {
        let vendor = VENDORS.iter().find(|vendor| vendor.word == key.provider.name());
        if let Some(vendor) = vendor.filter(|vendor| !usable.iter().any(|(known, _)| known.word == vendor.word)) {
            usable.push((vendor, key.clone()));
        }
    }
    usable
}

async fn ask_vendor(found: &[(&'static Vendor, FoundCredential)]) -> Result<&'static Vendor, Failure> {
    for (vendor, key) in found {
        message!("  {:<10} key of {}", vendor.word, key.source);
    }
    let words: Vec<&str> = found.iter().map(|(vendor, _)| vendor.word).collect();
    named_vendor(&prompter::ask_choice("which upstream? ", &words).await)
}

fn named_vendor(word: &str) -> Result<&'static Vendor, Failure> {
    VENDORS.iter().find(|vendor| vendor.word == word).ok_or_else(|| {
        let near = policy::closest(word, VENDORS.iter().map(|vendor| vendor.word));
        let hint = near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
        let what = format!("unknown upstream `{word}`{hint}; another server needs `--base-url` and `--model`");
        Failure::new(ProblemCode::InvalidRequest, what)
            .help(format!("viv setup --upstream {} --yes", near.unwrap_or("anthropic")))
    })
}

fn chosen_agents(given: Vec<String>, usual: &[&str]) -> Vec<String> {
    if given.is_empty() { usual.iter().map(|agent| (*agent).to_owned()).collect() } else { given }
}

fn check_agents(agents: &[String]) -> Result<(), Failure> {
    for agent in agents {
        crate::agents::AgentSpec::parse(agent)?;
    }
    Ok(())
}

fn check_variable(name: &str) -> Result<(), Failure> {
    if config::host_variable(name).is_some_and(|value| !value.trim().is_empty()) {
        return Ok(());
    }
    let what = format!("environment variable `{name}` is not set");
    Err(Failure::new(ProblemCode::ConfigInvalid, what).help("viv credentials"))
}

fn nothing_found() -> Failure {
    let what = "no model key was found on this host; an agent's login belongs to the agent's own program";
    Failure::new(ProblemCode::ConfigInvalid, what).help("viv credentials")
}

fn no_key(vendor: &Vendor) -> Failure {
    let what = format!("no key for {} was found on this host", vendor.word);
    let variable = match vendor.kind {
        UpstreamKind::Anthropic => "ANTHROPIC_API_KEY",
        UpstreamKind::Gemini => "GEMINI_API_KEY",
        _ => "OPENAI_API_KEY",
    };
    Failure::new(ProblemCode::ConfigInvalid, what)
        .help(format!("read -rs {variable} && export {variable} && viv setup --upstream {} --yes", vendor.word))
}
