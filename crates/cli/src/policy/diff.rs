//! `viv policy diff A B`: compare two policies.

use std::io::Write;
use std::process::ExitCode;

use ::policy::{ChangeDirection, KeyChange};

use super::{PolicyCommandError, PolicyContext, load, print_json};

/// Exit code of `--fail-on-wider` when the second policy allows more.
const FINDINGS: u8 = 9;

/// Arguments of `diff`.
#[derive(Debug, clap::Args)]
pub(crate) struct DiffArguments {
    /// Policy file or preset
    before: String,
    /// Policy file or preset to compare with
    after: String,
    /// Exit with code 9 if the second policy allows more
    #[arg(long)]
    fail_on_wider: bool,
}

/// Prints every key that differs, with its direction.
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
