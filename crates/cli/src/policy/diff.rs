//! `viv policy diff A B`.

use std::io::Write;
use std::process::ExitCode;

use ::policy::{ChangeDirection, KeyChange};

use super::{PolicyCommandError, PolicyContext, load, print_json};

/// Findings are present, and were asked to fail.
const FINDINGS: u8 = 9;

/// Arguments of `diff`.
#[derive(Debug, clap::Args)]
pub(crate) struct DiffArguments {
    /// A policy file or a preset
    before: String,
    /// Another one
    after: String,
    /// End with exit code 9 when anything becomes wider
    #[arg(long)]
    fail_on_wider: bool,
}

/// Prints every key that differs, and which way.
pub(super) fn run(
    args: &DiffArguments,
    setting: &PolicyContext,
    out: &mut dyn Write,
) -> Result<ExitCode, PolicyCommandError> {
    let (before, after) = (load::base(&args.before)?, load::base(&args.after)?);
    let changes = ::policy::diff(before.policy(), after.policy());
    if setting.json {
        print_json(out, &changes)?;
    } else {
        for change in &changes {
            show(change, out).map_err(PolicyCommandError::Output)?;
        }
    }
    let wider = changes.iter().any(|change| change.direction != ChangeDirection::Narrower);
    Ok(if args.fail_on_wider && wider { ExitCode::from(FINDINGS) } else { ExitCode::SUCCESS })
}

fn show(change: &KeyChange, out: &mut dyn Write) -> std::io::Result<()> {
    let word = match change.direction {
        ChangeDirection::Wider => "wider",
        ChangeDirection::Narrower => "narrower",
        ChangeDirection::Both => "both",
    };
    let mut parts = Vec::new();
    if change.added.is_empty() && change.removed.is_empty() {
        parts.push(format!("{} → {}", change.before, change.after));
    }
    parts.extend(change.added.iter().map(|entry| format!("+{entry}")));
    parts.extend(change.removed.iter().map(|entry| format!("-{entry}")));
    writeln!(out, "{word:<8}  {:<20}  {}", change.key.name(), parts.join(" "))
}
