//! File denials of a policy, stored for the time when changes are shown and applied.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::pattern::{PathGlob, PathGlobSet};
use crate::policy::CompiledPolicy;
use crate::rule::{RuleRef, WithRule};
use crate::secret_files::{is_secret_directory, secret_clue};

/// The globs of `fs.deny_write` and `fs.deny_read` with their rules, and the files that were hidden from one sandbox.
/// They are stored with a change set and checked when it is shown or applied. Hidden files are included because an apply
/// must not overwrite them, and because their content on the host must not appear in a diff.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "StoredDenials", into = "StoredDenials")]
pub struct FileDenials {
    rules: Vec<FileDenial>,
    secrets: Option<SecretDenials>,
    /// Computed on first use: the globs of all rules.
    globs: OnceLock<PathGlobSet>,
    /// Computed on first use: the globs of `fs.deny_read`.
    read_globs: OnceLock<PathGlobSet>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FileDenial {
    #[serde(with = "as_text")]
    glob: PathGlob,
    rule: RuleRef,
}

/// The result of `<secrets>` in one workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SecretDenials {
    rule: RuleRef,
    /// Files and directories that were hidden.
    #[serde(default)]
    hidden: BTreeSet<StoredPath>,
    /// Files with the name of a secret that stayed visible.
    #[serde(default)]
    visible: BTreeSet<StoredPath>,
}

/// The stored form. Earlier versions stored the list of rules alone.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredDenials {
    Rules(Vec<FileDenial>),
    WithSecrets { rules: Vec<FileDenial>, secrets: SecretDenials },
}

impl From<StoredDenials> for FileDenials {
    fn from(stored: StoredDenials) -> Self {
        let (rules, secrets) = match stored {
            StoredDenials::Rules(rules) => (rules, None),
            StoredDenials::WithSecrets { rules, secrets } => (rules, Some(secrets)),
        };
        Self { rules, secrets, globs: OnceLock::new(), read_globs: OnceLock::new() }
    }
}

impl From<FileDenials> for StoredDenials {
    fn from(denials: FileDenials) -> Self {
        match denials.secrets {
            None => Self::Rules(denials.rules),
            Some(secrets) => Self::WithSecrets { rules: denials.rules, secrets },
        }
    }
}

impl PartialEq for FileDenials {
    fn eq(&self, other: &Self) -> bool {
        self.rules == other.rules && self.secrets == other.secrets
    }
}

impl Eq for FileDenials {}

impl FileDenials {
    pub(crate) fn of(policy: &CompiledPolicy) -> Self {
        let fs = &policy.fs;
        let globs = fs.deny_write.entries().chain(fs.deny_read.entries()).filter(|entry| !entry.value.is_secrets());
        let secrets = |entry: &WithRule<PathGlob>| SecretDenials {
            rule: entry.rule.clone(),
            hidden: BTreeSet::new(),
            visible: BTreeSet::new(),
        };
        Self {
            rules: globs.map(|entry| FileDenial { glob: entry.value.clone(), rule: entry.rule.clone() }).collect(),
            secrets: fs.deny_read.find(PathGlob::is_secrets).map(secrets),
            globs: OnceLock::new(),
            read_globs: OnceLock::new(),
        }
    }

    /// Adds the result of `<secrets>` in one workspace: the `hidden` paths, and the `visible` files that have the name of
    /// a secret.
    #[must_use]
    pub fn with_secrets<'a>(
        mut self,
        hidden: impl IntoIterator<Item = &'a Path>,
        visible: impl IntoIterator<Item = &'a Path>,
    ) -> Self {
        if let Some(secrets) = &mut self.secrets {
            secrets.hidden.extend(hidden.into_iter().map(StoredPath::from));
            secrets.visible.extend(visible.into_iter().map(StoredPath::from));
        }
        self
    }

    /// Returns every glob as text, with its rule.
    pub fn entries(&self) -> impl Iterator<Item = (String, &RuleRef)> {
        self.rules.iter().map(|denial| (denial.glob.to_string(), &denial.rule))
    }

    /// Returns the rule that denies writing `path`, which is relative to the workspace.
    pub fn rule_denying(&self, path: &Path) -> Option<&RuleRef> {
        let set = self.globs.get_or_init(|| PathGlobSet::new(self.rules.iter().map(|denial| &denial.glob)));
        let mut rules = set.may_match(path).then_some(&self.rules).into_iter().flatten();
        let listed = rules.find(|denial| denial.glob.matches(path)).map(|denial| &denial.rule);
        listed.or_else(|| self.secrets.as_ref().filter(|secrets| secrets.hides(path)).map(|secrets| &secrets.rule))
    }

    /// Returns the rule that hid `path` from the sandbox.
    pub fn rule_denying_read(&self, path: &Path) -> Option<&RuleRef> {
        let hidden = || self.secrets.as_ref().filter(|secrets| secrets.hides(path)).map(|secrets| &secrets.rule);
        self.listed(path).map(|denial| &denial.rule).or_else(hidden)
    }

    /// Returns whether `path` was hidden from the sandbox, so that its content on the host must not be shown. A file with
    /// the name of a secret that appeared on the host later counts as hidden.
    pub fn hides(&self, path: &Path) -> bool {
        self.listed(path).is_some()
            || self.secrets.as_ref().is_some_and(|secrets| secrets.hides(path) || secrets.may_hide(path))
    }

    /// Returns the first glob of `fs.deny_read` that matches `path`.
    fn listed(&self, path: &Path) -> Option<&FileDenial> {
        let set = self.read_globs.get_or_init(|| PathGlobSet::new(self.read_rules().map(|denial| &denial.glob)));
        set.may_match(path).then(|| self.read_rules().find(|denial| denial.glob.matches(path))).flatten()
    }

    fn read_rules(&self) -> impl Iterator<Item = &FileDenial> {
        self.rules.iter().filter(|denial| denial.rule.text.starts_with("fs.deny_read"))
    }
}

impl SecretDenials {
    fn hides(&self, path: &Path) -> bool {
        !self.hidden.is_empty() && path.ancestors().any(|part| self.hidden.contains(&StoredPath::from(part)))
    }

    /// Returns whether `path` has the name of a secret and was not there when the sandbox was made.
    fn may_hide(&self, path: &Path) -> bool {
        let is_named = secret_clue(path).is_some() || path.ancestors().skip(1).any(is_secret_directory);
        is_named && !self.visible.contains(&StoredPath::from(path))
    }
}

/// A path in JSON: a text if it is UTF-8, otherwise its bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
enum StoredPath {
    Text(PathBuf),
    Bytes { bytes: Vec<u8> },
}

impl From<&Path> for StoredPath {
    fn from(path: &Path) -> Self {
        use std::os::unix::ffi::OsStrExt as _;
        match path.to_str() {
            Some(_) => Self::Text(path.to_owned()),
            None => Self::Bytes { bytes: path.as_os_str().as_bytes().to_vec() },
        }
    }
}

/// Serializes a glob as text. An invalid glob fails the whole list, so that no denial gets lost.
mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de};

    use crate::pattern::PathGlob;

    pub(super) fn serialize<S: Serializer>(glob: &PathGlob, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(glob)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathGlob, D::Error> {
        let text = String::deserialize(deserializer)?;
        PathGlob::parse(&text).map_err(|bad| de::Error::custom(format!("{bad:?}")))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::FileDenials;
    use crate::{BaseLayer, CeilingLayer, PolicySource, effective};

    fn denials(deny_read: &str) -> FileDenials {
        let source = PolicySource::new("test.yaml", format!("version: 1\nfs: {{deny_read: [{deny_read}]}}\n"));
        effective(&CeilingLayer::built_in().unwrap(), &BaseLayer::read(&source).unwrap(), &[]).file_denials()
    }

    #[test]
    fn hidden_files_are_neither_shown_nor_written() {
        let denials = denials("<secrets>, 'private/**'")
            .with_secrets([Path::new(".env"), Path::new(".aws")], [Path::new("fixtures/ca.pem")]);
        for hidden in [".env", ".aws/config", "private/a", "later/.env", "later/tls.key", "x/.ssh/config"] {
            assert!(denials.hides(Path::new(hidden)), "{hidden}");
        }
        for visible in ["fixtures/ca.pem", "src/main.rs", ".env.example", ".git/config"] {
            assert!(!denials.hides(Path::new(visible)), "{visible}");
        }
        let rule = |path: &str| denials.rule_denying(Path::new(path)).map(|rule| rule.text.clone());
        assert_eq!(rule(".aws/config").as_deref(), Some("fs.deny_read: \"<secrets>\""));
        assert_eq!(rule("private/a").as_deref(), Some("fs.deny_read: \"private/**\""));
        assert!(rule(".git/config").is_some_and(|text| text.starts_with("fs.deny_write")));
        // A new file of the sandbox overwrites nothing on the host.
        assert_eq!(rule("later/.env"), None);
    }

    #[test]
    fn denials_of_earlier_versions_are_readable() {
        let rule = r#"{"file":"default","text":"fs.deny_read: \"**/.env\"","layer":"base"}"#;
        let old: FileDenials = serde_json::from_str(&format!(r#"[{{"glob":"**/.env","rule":{rule}}}]"#)).unwrap();
        assert!(old.hides(Path::new("a/.env")) && !old.hides(Path::new("a/id_rsa")));
        let new = denials("<secrets>, '**/x'").with_secrets([Path::new("\u{e9}/.env")], []);
        let text = serde_json::to_string(&new).unwrap();
        assert_eq!(serde_json::from_str::<FileDenials>(&text).unwrap(), new);
        assert_eq!(serde_json::from_str::<FileDenials>("[]").unwrap(), FileDenials::default());
    }
}
