//! The name and e-mail that git writes into commits made in a sandbox.
//!
//! They are the host's own, so that commits need no further setting inside. They are placed in the system's
//! configuration of the sandbox, which programs inside cannot change.

use std::path::Path;

use super::Commit;
use super::git::{GitPlace, host_setting};

/// The longest name or e-mail in characters.
const MAX_LENGTH: usize = 200;

/// A name and an e-mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitIdentity {
    /// The name.
    pub name: String,
    /// The e-mail.
    pub email: String,
}

impl GitIdentity {
    /// The path of the configuration inside a sandbox.
    pub const SYSTEM_CONFIG: &str = "/etc/gitconfig";

    /// Returns the identity of a session whose host has none.
    pub fn neutral(session: &str) -> Self {
        Self { name: format!("viv session {session}"), email: "session@viv.invalid".to_owned() }
    }

    /// Returns the identity in configuration texts, the last one first in rank. Returns `None` when they include others
    /// or are written in a way that only git can read.
    pub fn parse(texts: &[String], session: &str) -> Option<Self> {
        let (mut name, mut email) = (None, None);
        for text in texts {
            let mut in_user = false;
            for line in text.lines().map(str::trim) {
                if line.starts_with('[') {
                    let section = line.to_ascii_lowercase();
                    if section.starts_with("[include") {
                        return None;
                    }
                    in_user = section == "[user]";
                    if section.starts_with("[user]") && !in_user {
                        return None;
                    }
                } else if in_user && let Some((key, value)) = line.split_once('=') {
                    if value.contains(['\\', '"', '#', ';']) {
                        return None;
                    }
                    match key.trim().to_ascii_lowercase().as_str() {
                        "name" => name = Some(value.trim().to_owned()),
                        "email" => email = Some(value.trim().to_owned()),
                        _ => {}
                    }
                }
            }
        }
        Some(Self::of(name, email, session))
    }

    /// Asks git for the identity that it uses in `workspace`, or outside every repository.
    pub fn ask_git(workspace: Option<&Path>, session: &str) -> Self {
        let place = GitPlace::Host(workspace.unwrap_or(Path::new("/")));
        Self::of(host_setting(place, "user.name"), host_setting(place, "user.email"), session)
    }

    /// Returns the identity that sessions in this workspace get.
    pub(crate) fn of_repository(workspace: &Path, session: &str) -> Self {
        Self::ask_git(Some(workspace), session)
    }

    fn of(name: Option<String>, email: Option<String>, session: &str) -> Self {
        let neutral = Self::neutral(session);
        let clean = |text: Option<String>| {
            let text: String = text?.chars().filter(|sign| !sign.is_control()).take(MAX_LENGTH).collect();
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        Self { name: clean(name).unwrap_or(neutral.name), email: clean(email).unwrap_or(neutral.email) }
    }

    /// Returns whether author and committer of a commit are this identity.
    pub(crate) fn is_of(&self, commit: &Commit) -> bool {
        let written = [(&commit.author, &commit.email), (&commit.committer, &commit.committer_email)];
        written.iter().all(|(name, email)| **name == self.name && **email == self.email)
    }

    /// Returns the configuration of git inside a sandbox. The workspace belongs to another user there, which git accepts
    /// because of `safe.directory`. Git does not repack by itself, because that would copy the whole repository.
    pub fn system_config(&self) -> String {
        let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        format!(
            "[user]\n\tname = \"{}\"\n\temail = \"{}\"\n[safe]\n\tdirectory = *\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n",
            quoted(&self.name),
            quoted(&self.email)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::GitIdentity;

    #[track_caller]
    fn check(texts: &[&str], expected: Option<(&str, &str)>) {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let found = GitIdentity::parse(&texts, "s1");
        let found = found.as_ref().map(|identity| (identity.name.as_str(), identity.email.as_str()));
        assert_eq!(found, expected, "{texts:?}");
    }

    #[test]
    fn later_texts_override_earlier_ones() {
        let neutral = ("viv session s1", "session@viv.invalid");
        check(&[], Some(neutral));
        check(&["[user]\n\tname = Ada L\n\temail = ada@example.com\n"], Some(("Ada L", "ada@example.com")));
        check(&["[user]\nname = A\n", "[core]\nname = x\n[User]\nNAME = B\n"], Some(("B", neutral.1)));
        check(&["[user]\nname =\n"], Some(neutral));
    }

    #[test]
    fn texts_that_only_git_can_read_are_left_to_git() {
        for text in [
            "[include]\n\tpath = other\n",
            "[includeIf \"gitdir:~/project/\"]\n\tpath = other\n",
            "[user]\n\tname = \"A\"\n",
            "[user]\n\tname = A # b\n",
            "[user] name = A\n",
            "[user]\n\tname = a\\\nb\n",
        ] {
            check(&[text], None);
        }
    }

    #[test]
    fn configuration_quotes_the_identity() {
        let identity = GitIdentity { name: "A \"B\" \\".to_owned(), email: "a@example.com".to_owned() };
        let config = identity.system_config();
        assert!(config.starts_with("[user]\n\tname = \"A \\\"B\\\" \\\\\"\n\temail = \"a@example.com\"\n"), "{config}");
    }
}
