//! `viv policy explain [FILE|PRESET] [--session S]`: explain a policy in sentences.

use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;

use protocol::{PolicyEffective, PolicySentence};
use serde_json::{Value, json};

use super::{PolicyCommandError, PolicyContext, load, print_json};

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArguments {
    /// Policy file or preset (default: the policy of sessions in this directory)
    policy: Option<String>,
    /// Explain the policy of this session instead, with the enforcement of each key
    #[arg(long, value_name = "SESSION", conflicts_with = "policy")]
    pub(crate) session: Option<String>,
}

/// Prints one sentence per line, each with its layer and rule.
pub(super) fn run(
    args: &ExplainArguments,
    setting: &PolicyContext,
    out: &mut dyn Write,
    people: &mut dyn Write,
) -> Result<ExitCode, PolicyCommandError> {
    let session = if let Some(name) = &args.policy {
        load::named_policy(name, setting)?
    } else {
        let (session, note) = load::default_policy(setting)?;
        writeln!(people, "from {note}").map_err(PolicyCommandError::Output)?;
        session
    };
    let sentences = ::policy::explain(&session);
    if setting.json {
        return print_json(out, &sentences);
    }
    for sentence in sentences {
        writeln!(out, "{}  [{}: {}]", sentence.text, sentence.layer, sentence.rule.location())
            .map_err(PolicyCommandError::Output)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Renders the policy of a session: the sentences, then the enforcement of each key.
pub(crate) fn session(effective: &PolicyEffective, json: bool) -> String {
    if json {
        return format!("{}\n", json!(effective));
    }
    let mut text = String::new();
    for PolicySentence { text: sentence, layer, rule } in &effective.sentences {
        let _ = writeln!(text, "{sentence}  [{layer}: {rule}]");
    }
    let _ = writeln!(text, "\nenforced by the {} backend:", effective.backend);
    for (key, row) in effective.keys.as_object().into_iter().flatten() {
        let word = |name| row.get(name).and_then(Value::as_str).unwrap_or_default();
        let _ = writeln!(text, "  {key:<14} {:<9} {}", word("state"), word("by"));
    }
    text
}
