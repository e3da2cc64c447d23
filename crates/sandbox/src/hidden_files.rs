//! The search for files of a workspace that a policy hides.
//!
//! A glob of `fs.deny_read` hides every file it matches. `<secrets>` hides files that are recognised as secrets, unless git
//! tracks them: a tracked file is part of the source, and without it the next commit would delete it. A tracked file that
//! a glob hides is marked in the sandbox's copy of the git index, so that git inside does not miss it.
//!
//! The search is one walk. The index is read only if there is something to hide. Files that appear on the host after the
//! sandbox was made are not found.

mod git_config;
mod git_index;
mod second_names;
mod tracking;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use jail::CoverFile;
use policy::{DenyGlobs, FileDenials, SECRET_HEAD_BYTES, SecretClue, is_secret_directory, secret_clue};
use rustix::fs::FileType;

use self::tracking::WorkspaceRepositories;
use crate::beneath;
use crate::tree::{VisitNext, visit};

/// The largest git configuration that is searched for credentials.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// The files of a workspace that one sandbox does not see as they are. All paths are relative to the workspace and sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HiddenFiles {
    /// Paths that a glob of `fs.deny_read` hides.
    pub named: Vec<PathBuf>,
    /// Paths that `<secrets>` hides.
    pub secrets: Vec<PathBuf>,
    /// Files with the name of a secret that stay visible, because git tracks them or their content is not secret.
    pub visible: Vec<PathBuf>,
    /// Paths of `named` that git tracks.
    pub tracked: Vec<PathBuf>,
    /// Git configurations that appear without their credentials.
    pub masked_configs: Vec<PathBuf>,
    /// The content of masked configurations and marked git indexes.
    pub(crate) covers: Vec<CoverFile>,
    /// A git index that has tracked files of `named` and cannot be marked.
    pub(crate) unmarked_index: Option<PathBuf>,
}

impl HiddenFiles {
    /// Finds the files in `workspace` that `deny` hides.
    pub fn find(workspace: &Path, deny: &DenyGlobs) -> io::Result<Self> {
        if deny.is_empty() && !deny.hides_secrets() {
            return Ok(Self::default());
        }
        let workspace = workspace.canonicalize()?;
        let root = beneath::root(&workspace)?;
        let found = Candidates::find(&root, deny)?;
        HiddenSearch { root: &root, repositories: WorkspaceRepositories::new(&workspace), hidden: Self::default() }
            .decide(found)
    }

    /// Returns every hidden path, sorted.
    pub fn paths(&self) -> Vec<PathBuf> {
        let mut paths: Vec<_> = self.named.iter().chain(&self.secrets).cloned().collect();
        paths.sort();
        paths
    }

    /// Returns how many paths are hidden. A hidden directory counts as one.
    pub fn count(&self) -> usize {
        self.named.len() + self.secrets.len()
    }

    /// Returns `denials` with the result of this search.
    pub(crate) fn recorded_in(&self, denials: FileDenials) -> FileDenials {
        let hidden = self.secrets.iter().chain(&self.masked_configs);
        denials.with_secrets(hidden.map(PathBuf::as_path), self.visible.iter().map(PathBuf::as_path))
    }
}

/// The result of the walk.
#[derive(Default)]
struct Candidates {
    named: Vec<PathBuf>,
    directories: Vec<PathBuf>,
    files: Vec<(PathBuf, SecretClue, FileType)>,
    configs: Vec<PathBuf>,
}

impl Candidates {
    fn find(root: &OwnedFd, deny: &DenyGlobs) -> io::Result<Self> {
        let mut found = Self::default();
        visit(root, Path::new(""), &mut |path, kind| {
            // The parents do not match, because a matching directory is skipped.
            if !deny.is_empty() && deny.matches_entry(path) {
                found.named.push(path.to_owned());
                return Ok(VisitNext::Skip);
            }
            if !deny.hides_secrets() {
                return Ok(VisitNext::Enter);
            }
            Ok(found.consider(path, kind, deny.is_empty()))
        })?;
        Ok(found)
    }

    /// Adds `path` if it may be a secret.
    fn consider(&mut self, path: &Path, kind: FileType, skips_objects: bool) -> VisitNext {
        if kind == FileType::Directory {
            if is_secret_directory(path) {
                self.directories.push(path.to_owned());
                return VisitNext::Skip;
            }
            // Objects are compressed, and there are many.
            return if skips_objects && path.ends_with(".git/objects") { VisitNext::Skip } else { VisitNext::Enter };
        }
        if !matches!(kind, FileType::RegularFile | FileType::Symlink) {
            return VisitNext::Enter;
        }
        if path.file_name().is_some_and(|name| name == "config" || name == "config.worktree") {
            self.configs.push(path.to_owned());
        } else if let Some(clue) = secret_clue(path) {
            self.files.push((path.to_owned(), clue, kind));
        }
        VisitNext::Enter
    }
}

/// Decides about candidates.
struct HiddenSearch<'a> {
    root: &'a OwnedFd,
    repositories: WorkspaceRepositories,
    hidden: HiddenFiles,
}

impl HiddenSearch<'_> {
    fn decide(mut self, found: Candidates) -> io::Result<HiddenFiles> {
        for path in found.directories {
            self.directory(path)?;
        }
        for (path, clue, kind) in found.files {
            self.file(path, clue, kind)?;
        }
        for path in found.configs {
            self.config(path);
        }
        self.hidden.named = found.named;
        self.mark_tracked()?;
        let hidden = self.hidden.paths();
        let more = second_names::find(self.root, &hidden)?;
        for path in more {
            if !self.repositories.tracks(&path)? {
                self.hidden.secrets.push(path);
            }
        }
        let HiddenFiles { named, secrets, visible, tracked, masked_configs, .. } = &mut self.hidden;
        for list in [named, secrets, visible, tracked, masked_configs] {
            list.sort();
            list.dedup();
        }
        Ok(self.hidden)
    }

    /// Hides a directory of secrets, or the files in it that git does not track.
    fn directory(&mut self, top: PathBuf) -> io::Result<()> {
        if !self.repositories.tracks(&top)? {
            self.hidden.secrets.push(top);
            return Ok(());
        }
        let mut files = Vec::new();
        visit(self.root, &top, &mut |path, kind| {
            if kind != FileType::Directory {
                files.push((path.to_owned(), SecretClue::Name, kind));
            }
            Ok(VisitNext::Enter)
        })?;
        files.into_iter().try_for_each(|(path, clue, kind)| self.file(path, clue, kind))
    }

    fn file(&mut self, path: PathBuf, clue: SecretClue, kind: FileType) -> io::Result<()> {
        if self.repositories.tracks(&path)? {
            self.hidden.visible.push(path);
            return Ok(());
        }
        let target = if kind == FileType::Symlink { self.repositories.target(&path) } else { None };
        let content = if kind == FileType::Symlink { target.as_deref() } else { Some(&*path) };
        let is_secret = match (clue, content) {
            (SecretClue::Name, _) => true,
            (SecretClue::Content(_), None) => false,
            (SecretClue::Content(kind), Some(content)) => self.head(content)?.is_none_or(|head| kind.is_in(&head)),
        };
        if !is_secret {
            self.hidden.visible.push(path);
            return Ok(());
        }
        // A link to a secret is of no use without it, and the secret has this name as well.
        if let Some(target) = target.filter(|target| secret_clue(target).is_none())
            && !self.repositories.tracks(&target)?
        {
            self.hidden.secrets.push(target);
        }
        self.hidden.secrets.push(path);
        Ok(())
    }

    /// Returns the first bytes of a file; `None` when it cannot be read.
    fn head(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        match beneath::regular(self.root, path) {
            Ok(Some(file)) => Ok(read_head(file, SECRET_HEAD_BYTES as u64).ok()),
            Ok(None) => Ok(Some(Vec::new())),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces a git configuration with credentials by one without.
    fn config(&mut self, path: PathBuf) {
        let Some(file) = beneath::regular(self.root, &path).unwrap_or_default() else { return };
        let Ok(content) = read_head(file, MAX_CONFIG_BYTES) else { return };
        if let Some(content) = git_config::without_credentials(&content) {
            self.hidden.masked_configs.push(path.clone());
            self.hidden.covers.push(CoverFile { path, content });
        }
    }

    /// Marks tracked files among the named ones in copies of their git indexes.
    fn mark_tracked(&mut self) -> io::Result<()> {
        let mut indexes = BTreeSet::new();
        for path in &self.hidden.named {
            if self.repositories.tracks(path)? {
                self.hidden.tracked.push(path.clone());
                indexes.extend(self.repositories.index_of(path));
            }
        }
        for index in indexes {
            match self.repositories.marked(&index, &self.hidden.tracked) {
                Some(content) => self.hidden.covers.push(CoverFile { path: index, content }),
                None => self.hidden.unmarked_index = Some(index),
            }
        }
        Ok(())
    }
}

fn read_head(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    file.take(limit).read_to_end(&mut head)?;
    Ok(head)
}

#[cfg(test)]
mod tests;
