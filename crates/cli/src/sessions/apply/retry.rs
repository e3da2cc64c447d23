//! The command that helps after a refused apply.
//!
//! The agent chose the names of the paths, so each is quoted for a shell. A path that cannot be shown as it is gets left out.

use std::path::Path;

use sandbox::{ApplyOptions, RefusalReason, RefusedPath, quoted};

/// Returns the command that confirms or leaves out the refused paths; `None` when no command helps.
pub(in crate::sessions) fn command(
    session: &str,
    refusals: &[RefusedPath],
    options: &ApplyOptions,
    policy: Option<&str>,
) -> Option<String> {
    if refusals.iter().any(|refused| matches!(refused.reason, RefusalReason::NotChanged | RefusalReason::BadPath)) {
        return None;
    }
    let is_unconfirmed = |refused: &&RefusedPath| matches!(refused.reason, RefusalReason::NotConfirmed { .. });
    let unconfirmed: Vec<&RefusedPath> = refusals.iter().filter(is_unconfirmed).collect();
    let words: Vec<String> = unconfirmed.iter().filter_map(|refused| shell_word(&refused.path)).collect();
    let skips = options.skip_refused || unconfirmed.len() < refusals.len() || words.len() < unconfirmed.len();
    let mut command = format!("viv sessions apply {session}");
    for path in &options.paths {
        command = format!("{command} {}", shell_word(path)?);
    }
    if let Some(policy) = policy {
        command = format!("{command} --policy {}", shell_word(Path::new(policy))?);
    }
    let confirmed = options.confirm.iter().filter_map(|path| shell_word(path));
    for word in confirmed.chain(words) {
        command = format!("{command} --confirm {word}");
    }
    let flags = [(skips, " --skip-refused"), (options.ignored, " --ignored")];
    flags.iter().filter(|(wanted, _)| *wanted).for_each(|(_, flag)| command.push_str(flag));
    Some(command)
}

/// Returns a path as one word of a shell; `None` when it has characters that a terminal does not show as they are.
fn shell_word(path: &Path) -> Option<String> {
    let text = path.to_str().filter(|text| !text.starts_with('-'))?;
    if quoted(path) != text {
        return None;
    }
    if text.chars().all(|sign| sign.is_ascii_alphanumeric() || "._-/+@".contains(sign)) {
        return Some(text.to_owned());
    }
    Some(format!("'{}'", text.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use sandbox::RunKind;

    use super::*;

    fn unconfirmed(path: &str) -> RefusedPath {
        RefusedPath { path: path.into(), reason: RefusalReason::NotConfirmed { kind: RunKind::Hook, name: None } }
    }

    #[test]
    fn command_confirms_paths_and_leaves_the_rest_out() {
        let options = ApplyOptions::default();
        let paths = [unconfirmed(".husky/pre-commit"), unconfirmed("it's; rm -rf ~/CLAUDE.md")];
        assert_eq!(
            command("s1", &paths, &options, None).unwrap(),
            r"viv sessions apply s1 --confirm .husky/pre-commit --confirm 'it'\''s; rm -rf ~/CLAUDE.md'"
        );
        let special = RefusedPath { path: "fifo".into(), reason: RefusalReason::SpecialFile };
        let both = [unconfirmed("AGENTS.md"), special];
        let options = ApplyOptions { ignored: true, ..ApplyOptions::only(["src", "a b"]) };
        assert_eq!(
            command("s1", &both, &options, Some("strict")).unwrap(),
            "viv sessions apply s1 src 'a b' --policy strict --confirm AGENTS.md --skip-refused --ignored"
        );
        let unknown = RefusedPath { path: "typo".into(), reason: RefusalReason::NotChanged };
        assert_eq!(command("s1", &[unknown], &ApplyOptions::default(), None), None);
    }

    #[test]
    fn paths_that_a_terminal_would_not_show_are_left_out() {
        for path in ["a\u{1b}[2Jb/AGENTS.md", "x\u{202e}y/AGENTS.md", "-rf"] {
            let asked = [unconfirmed(path)];
            assert_eq!(
                command("s1", &asked, &ApplyOptions::default(), None).unwrap(),
                "viv sessions apply s1 --skip-refused"
            );
        }
    }
}
