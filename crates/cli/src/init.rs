//! `viv init`: write a commented policy for this project.
//!
//! Every rule of the file is commented out, so the file changes nothing until a person removes a `#`. A project's policy can
//! only take away, so a repository cannot give its agents more than the person who runs them allows.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use protocol::ProblemCode;
use serde_json::json;

use crate::failure::Failure;
use crate::output::{self, message};
use crate::shell_word::shell_word;

/// Name of the policy file of a project.
const NAME: &str = "sandbox.policy.yaml";

/// Files of projects that agents seldom need to change, with the pattern of their rule.
const SELDOM_CHANGED: &[(&str, &str)] = &[
    (".github", ".github/**"),
    (".gitlab-ci.yml", ".gitlab-ci.yml"),
    ("Dockerfile", "Dockerfile"),
    ("Cargo.lock", "Cargo.lock"),
    ("package-lock.json", "package-lock.json"),
    ("pnpm-lock.yaml", "pnpm-lock.yaml"),
    ("yarn.lock", "yarn.lock"),
    ("poetry.lock", "poetry.lock"),
    ("uv.lock", "uv.lock"),
    ("go.sum", "go.sum"),
    ("migrations", "migrations/**"),
];

/// Files of projects that agents seldom need to read.
const SELDOM_READ: &[(&str, &str)] = &[
    ("secrets", "secrets/**"),
    ("private", "private/**"),
    ("terraform.tfstate", "terraform.tfstate*"),
    ("data", "data/**"),
];

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  viv init
  viv init --workspace ../other-project")]
pub(crate) struct InitArguments {
    /// Directory of the project
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,
}

/// Runs `viv init`.
pub(crate) fn carry_out(arguments: &InitArguments, json: bool) -> Result<ExitCode, Failure> {
    let path = arguments.workspace.join(NAME);
    let shown = shell_word(&path.to_string_lossy());
    let created = std::fs::File::options().write(true).create_new(true).open(&path);
    let mut file = created.map_err(|error| {
        if error.kind() == std::io::ErrorKind::AlreadyExists {
            let what = format!("`{}` exists already and was not changed", path.display());
            return Failure::new(ProblemCode::InvalidRequest, what).help(format!("viv policy check {shown}"));
        }
        let what = format!("cannot create `{}`", path.display());
        Failure::new(ProblemCode::InvalidRequest, what).because(&error).help("viv init --workspace .")
    })?;
    file.write_all(text(&arguments.workspace).as_bytes()).map_err(|error| {
        Failure::new(ProblemCode::InvalidRequest, format!("cannot write `{}`", path.display()))
            .because(&error)
            .help("df -h .")
    })?;
    if json {
        output::print_json(&json!({"path": path}))?;
    }
    message!("wrote {}: every rule is commented out, so nothing changes yet", path.display());
    message!("next: ${{EDITOR:-vi}} {shown} && viv policy check {shown} && viv policy explain");
    Ok(ExitCode::SUCCESS)
}

/// Returns the policy for a project with examples of its own files.
fn text(project: &Path) -> String {
    let examples = |known: &[(&str, &str)], otherwise: &str| {
        let found: Vec<String> = known
            .iter()
            .filter(|(name, _)| project.join(name).exists())
            .map(|(_, pattern)| format!("\"{pattern}\""))
            .collect();
        if found.is_empty() { format!("\"{otherwise}\"") } else { found.join(", ") }
    };
    let mut text = String::from(HEAD);
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "\n# fs:\n#   # Files that agents cannot see, besides recognised secrets.\n#   deny_read: [{}]\n\
         #   # Files that agents cannot change.\n#   deny_write: [{}]\n",
        examples(SELDOM_READ, "secrets/**"),
        examples(SELDOM_CHANGED, "LICENSE"),
    );
    text.push_str(REST);
    text
}

const HEAD: &str = "\
# Policy of this project for coding agents that viv runs.
#
# A project can only take away from the policy of the person who runs an agent here. A key that is absent changes
# nothing. Remove the `#` before a section and its keys to use them.
#
#   viv policy check sandbox.policy.yaml    finds mistakes in this file
#   viv policy explain                      shows what agents may do here, and the rule of each sentence
#   viv policy schema                       describes every key
version: 1
";

const REST: &str = "
# net:
#   # Of the hosts that the person's policy allows, only these.
#   allowlist: [\"docs.example.com:443\"]

# proc:
#   # Limits of all processes of a session together.
#   memory: 2GiB
#   timeout: 20m

# models:
#   # Models that agents can call, and the most that a session can spend.
#   allow: [\"claude-*\", \"gpt-*\"]
#   budget_usd: 2.00
#   # Refuse models whose price is not known, instead of limiting their tokens.
#   unpriced: deny

# tools:
#   # Tool calls that a person has to approve, and tool calls that are always denied.
#   ask: [\"Bash(git push*)\", \"Bash(rm -rf *)\"]
#   deny: [\"WebFetch\"]
";

#[cfg(test)]
mod tests {
    use ::policy::{NarrowingLayer, PolicySource};

    use super::*;

    #[test]
    fn policy_is_valid_with_and_without_its_rules() {
        let project = tempfile::tempdir().unwrap();
        std::fs::write(project.path().join("Cargo.lock"), "").unwrap();
        let written = text(project.path());
        assert!(written.contains("deny_write: [\"Cargo.lock\"]"), "{written}");
        NarrowingLayer::read(&PolicySource::new("init", written.clone())).unwrap();
        // A person removes every `# ` behind the head.
        let (head, rules) = written.split_once("version: 1\n").unwrap();
        let rules: Vec<&str> = rules.lines().map(|line| line.strip_prefix("# ").unwrap_or(line)).collect();
        let active = format!("{head}version: 1\n{}\n", rules.join("\n"));
        assert!(active.contains("\nfs:\n") && active.contains("\n  deny: ["), "{active}");
        NarrowingLayer::read(&PolicySource::new("init", active)).unwrap();
    }
}
