//! The rules about names, compiled into one set of globs.
//!
//! A name is judged with all its parent directories, so the verdict of a directory is computed once and kept.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use policy::{FileDenials, RuleRef};

use super::folded_name::folded;
use super::host_settings::HostSettings;
use super::run_kind::{RUNS_BY_ITSELF, RunKind};
use crate::review::git_directory::is_inside_git_directory;

/// Returns the rule that denies writing a path, which is relative to the workspace.
pub type WriteRules<'a> = &'a dyn Fn(&Path) -> Option<RuleRef>;

/// The effect of one glob.
#[derive(Debug, Clone)]
enum GlobEffect {
    Denied(RuleRef),
    Runs(RunKind),
}

/// The verdict about one name. Every field holds the first match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NameVerdict {
    /// The name is inside a git directory.
    pub(crate) inside_git: bool,
    /// The setting of the host's git that names it.
    pub(crate) host_setting: Option<String>,
    /// A rule that denies writing it.
    pub(crate) denied: Option<RuleRef>,
    pub(crate) runs: Option<RunKind>,
}

impl NameVerdict {
    pub(crate) fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Adds what `other` says and this verdict does not.
    fn or(mut self, other: Self) -> Self {
        self.inside_git |= other.inside_git;
        self.host_setting = self.host_setting.or(other.host_setting);
        // A rule of a person or organisation counts more than a default, which `runs` may soften.
        if self.denied.as_ref().is_none_or(|rule| is_soft(rule) && other.denied.is_some()) {
            self.denied = other.denied;
        }
        self.runs = self.runs.or(other.runs);
        self
    }

    /// Returns the rule that denies the name. A default of `deny_write` gives way when the name can be confirmed: the default
    /// protects workspaces that are mounted directly, where nothing is reviewed.
    pub(crate) fn denial(&self) -> Option<&RuleRef> {
        self.denied.as_ref().filter(|rule| self.runs.is_none() || !is_soft(rule))
    }

    /// Returns whether the name is refused, whatever a person confirms.
    pub(crate) fn is_refused(&self) -> bool {
        self.inside_git || self.host_setting.is_some() || self.denial().is_some()
    }
}

fn is_soft(rule: &RuleRef) -> bool {
    rule.is_default() && rule.text.starts_with("fs.deny_write")
}

/// The globs that have names below one name.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct GlobsBelow {
    globs: Vec<usize>,
    /// The name itself, when the host's git settings name a path below it.
    exact: Option<PathBuf>,
}

/// Globs with their effects.
#[derive(Debug)]
struct EffectSet {
    set: GlobSet,
    effects: Vec<GlobEffect>,
}

/// All rules about names.
pub(crate) struct NameRules<'a> {
    /// Globs of names.
    names: EffectSet,
    /// Globs of the directories above such names, below the first one that a glob names.
    above: EffectSet,
    settings: &'a HostSettings,
    rules: WriteRules<'a>,
    /// The denials again: the secrets of a workspace are listed by path, not by glob.
    denials: Vec<&'a FileDenials>,
    known: RefCell<HashMap<PathBuf, NameVerdict>>,
}

impl<'a> NameRules<'a> {
    /// Compiles the built-in rules, those of `denials`, and those of the host's git.
    pub(crate) fn new(
        denials: &[&'a FileDenials],
        rules: WriteRules<'a>,
        settings: &'a HostSettings,
    ) -> io::Result<Self> {
        let (mut names, mut above) = (EffectSetBuilder::default(), EffectSetBuilder::default());
        for (kind, globs) in RUNS_BY_ITSELF {
            for glob in globs {
                add(&mut names, &mut above, &format!("**/{glob}"), &GlobEffect::Runs(kind))?;
            }
        }
        for (glob, rule) in denials.iter().flat_map(|denials| denials.entries()) {
            add(&mut names, &mut above, &glob, &GlobEffect::Denied(rule.clone()))?;
        }
        let (names, above) = (names.build()?, above.build()?);
        Ok(Self { names, above, settings, rules, denials: denials.to_vec(), known: RefCell::default() })
    }

    /// Returns the verdict about a name and the directories above it.
    pub(crate) fn named(&self, name: &Path) -> NameVerdict {
        let verdict = self.named_by_globs(name);
        let rule_for = |name: &Path| {
            (self.rules)(name).or_else(|| self.denials.iter().find_map(|denials| denials.rule_denying(name)).cloned())
        };
        let denied = || rule_for(name).or_else(|| rule_for(&folded(name)));
        match verdict.denied {
            Some(ref rule) if !is_soft(rule) => verdict,
            _ => NameVerdict { denied: denied(), ..NameVerdict::default() }.or(verdict),
        }
    }

    fn named_by_globs(&self, name: &Path) -> NameVerdict {
        let Some(parent) = name.parent() else { return NameVerdict::default() };
        let known = self.known.borrow().get(parent).cloned();
        let above = known.unwrap_or_else(|| {
            let verdict = self.named_by_globs(parent);
            self.known.borrow_mut().insert(parent.to_owned(), verdict.clone());
            verdict
        });
        let short = folded(name);
        let own = NameVerdict {
            inside_git: is_inside_git_directory(&short),
            host_setting: self.settings.naming(&short).map(ToOwned::to_owned),
            ..self.names.verdict(name, &short)
        };
        above.or(own)
    }

    /// Returns the verdict about names that may be below `name`: a link of this name would give its target such names.
    pub(crate) fn above(&self, name: &Path) -> NameVerdict {
        let short = folded(name);
        let host_setting = self.settings.naming_below(&short).map(ToOwned::to_owned);
        NameVerdict { host_setting, ..self.above.verdict(name, &short) }
    }

    /// Returns which globs have names below `name`. Two names with the same globs are equal for everything below them.
    pub(crate) fn globs_below(&self, name: &Path) -> GlobsBelow {
        let short = folded(name);
        let globs = self.above.set.matches(&short);
        let named_by_host = self.settings.naming_below(&short).is_some();
        GlobsBelow { globs, exact: named_by_host.then_some(short) }
    }
}

impl EffectSet {
    fn verdict(&self, name: &Path, short: &Path) -> NameVerdict {
        let mut verdict = NameVerdict::default();
        let mut matches = self.set.matches(short);
        if short != name {
            matches.extend(self.set.matches(name));
        }
        for effect in matches.into_iter().filter_map(|index| self.effects.get(index)) {
            let one = match effect.clone() {
                GlobEffect::Denied(rule) => NameVerdict { denied: Some(rule), ..NameVerdict::default() },
                GlobEffect::Runs(kind) => NameVerdict { runs: Some(kind), ..NameVerdict::default() },
            };
            verdict = verdict.or(one);
        }
        verdict
    }
}

#[derive(Default)]
struct EffectSetBuilder {
    globs: Vec<globset::Glob>,
    effects: Vec<GlobEffect>,
}

impl EffectSetBuilder {
    fn push(&mut self, glob: &str, effect: GlobEffect) -> io::Result<()> {
        self.globs.push(GlobBuilder::new(glob).literal_separator(true).build().map_err(io::Error::other)?);
        self.effects.push(effect);
        Ok(())
    }

    fn build(self) -> io::Result<EffectSet> {
        let mut builder = GlobSetBuilder::new();
        for glob in self.globs {
            builder.add(glob);
        }
        Ok(EffectSet { set: builder.build().map_err(io::Error::other)?, effects: self.effects })
    }
}

/// Adds a glob, and the globs of the directories above its names.
fn add(names: &mut EffectSetBuilder, above: &mut EffectSetBuilder, glob: &str, effect: &GlobEffect) -> io::Result<()> {
    names.push(glob, effect.clone())?;
    // `hooks/**` also means `hooks` itself, which could be replaced by a link.
    let glob = match glob.strip_suffix("/**").filter(|directory| !directory.is_empty()) {
        Some(directory) => {
            names.push(directory, effect.clone())?;
            directory
        }
        None => glob,
    };
    let mut directory = glob;
    while let Some((parent, _)) = directory.rsplit_once('/') {
        // A glob that can end anywhere says nothing about one directory, and alternatives may contain a slash.
        if !parent.ends_with("**") && !glob.contains('{') {
            above.push(parent, effect.clone())?;
        }
        directory = parent;
    }
    Ok(())
}
