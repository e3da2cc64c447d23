//! `viv policy explain [FILE|PRESET] [--session S]`: explain a policy in sentences.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::policy::{EffectivePolicy, Explanation, PolicyKey};
use base::PrintableText;
use protocol::{CopiedLinks, KeyEnforcement, PolicyEffective, PolicySentence};
use sandbox::Toolchains;
use serde_json::json;

use crate::config::host_variable;
use crate::network_arguments::NetworkArguments;

use super::{PolicyCommandError, PolicyContext, hidden, load, print_json};

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArguments {
    /// Policy file or preset (default: the policy of sessions in this directory)
    policy: Option<String>,
    /// Explain the policy of this session instead, with the enforcement of each key
    #[arg(long, value_name = "SESSION", conflicts_with = "policy")]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    network: NetworkArguments,
}

/// Prints one sentence per line, each with its layer and rule.
pub(super) fn run(
    args: &ExplainArguments,
    setting: &PolicyContext,
    out: &mut dyn Write,
    people: &mut dyn Write,
) -> Result<ExitCode, PolicyCommandError> {
    let setting = &setting.clone().with_network(&args.network);
    let session = if let Some(name) = &args.policy {
        load::named_policy(name, setting)?
    } else {
        let (session, note) = load::default_policy(setting)?;
        writeln!(people, "from {note}").map_err(PolicyCommandError::Output)?;
        session
    };
    load::check_allowed(&session, setting)?;
    if session.net().packages {
        for note in setting.packages.find(setting.workspace.as_deref()).notes() {
            let note = PrintableText::exact_line(note);
            writeln!(people, "note: {note}").map_err(PolicyCommandError::Output)?;
        }
    }
    let files = hidden::explain(&session, setting.workspace.as_deref())?;
    let explained = ::policy::explain(&session);
    let tools = found_toolchains(explained, &session, setting.workspace.as_deref());
    let sentences: Vec<_> = explained.iter().chain(&files).chain(&tools).collect();
    if setting.json {
        return print_json(out, &sentences);
    }
    for sentence in sentences {
        writeln!(out, "{}  [{}: {}]", sentence.text, sentence.layer, sentence.rule.location())
            .map_err(PolicyCommandError::Output)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a sentence for each toolchain that was found on this host.
fn found_toolchains(
    explained: &[Explanation],
    session: &EffectivePolicy,
    workspace: Option<&Path>,
) -> Vec<Explanation> {
    let Some(rule) = explained.iter().find(|sentence| sentence.key == PolicyKey::Toolchains) else { return Vec::new() };
    let workspace = workspace.and_then(|path| path.canonicalize().ok());
    let found = Toolchains::find(host_variable, workspace.as_deref(), session);
    let sentence = |(tool, directories): (&str, Vec<PathBuf>)| {
        let directories: Vec<_> = directories.iter().map(|path| path.display().to_string()).collect();
        Explanation { text: format!("Found: {tool} in {}.", directories.join(", ")), ..rule.clone() }
    };
    found.list().into_iter().map(sentence).collect()
}

/// Returns a line about the files that the policy hides in a session; `None` when there are none.
pub(crate) fn hidden_notice(effective: &PolicyEffective) -> Option<String> {
    let files = effective.keys.get("fs.deny_read")?.hidden?;
    Some(format!("{}: viv policy explain", hidden::count(usize::try_from(files).ok()?)?))
}

/// Renders the policy of a session: the sentences, then the enforcement of each key.
pub(crate) fn session(effective: &PolicyEffective, json: bool) -> String {
    if json {
        return format!("{}\n", json!(effective));
    }
    let mut text = String::new();
    for PolicySentence { text: sentence, layer, rule } in &effective.sentences {
        let _ = writeln!(text, "{}", PrintableText::exact_line(&format!("{sentence}  [{layer}: {rule}]")));
    }
    let _ = writeln!(text, "\nenforced by the {} backend:", effective.backend);
    for (key, row) in effective.keys.iter() {
        let line = format!("  {key:<14} {:<9} {}{}", row.state.to_string(), row.by, notes(row));
        let _ = writeln!(text, "{}", PrintableText::exact_line(&line));
    }
    text
}

/// Returns the numbers of a row: hidden files, masked configurations, and hard links that were replaced by copies.
fn notes(row: &KeyEnforcement) -> String {
    let mut notes = String::new();
    if let Some(hidden) = row.hidden {
        let _ = write!(notes, "; {hidden} hidden");
    }
    for path in &row.without_credentials {
        let _ = write!(notes, "; {path} without its credentials");
    }
    if let Some(CopiedLinks { files, .. }) = row.copied_links {
        let _ = write!(notes, "; {files} hard-linked files replaced by private copies");
    }
    notes
}
