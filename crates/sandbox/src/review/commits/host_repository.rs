//! The host's repository, and the kinds of repositories that are refused.

use std::path::{Path, PathBuf};

use super::CommitsError;
use super::git::{GitCommand, GitPlace};
use super::repository_start::GIT;

/// The hash function of a repository's object ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectFormat {
    Sha1,
    Sha256,
}

impl ObjectFormat {
    /// Returns the number of hexadecimal digits of an id.
    pub(crate) fn digits(self) -> usize {
        match self {
            Self::Sha1 => 40,
            Self::Sha256 => 64,
        }
    }

    /// Returns the id of the empty tree, which git knows without storing it.
    pub(crate) fn empty_tree(self) -> &'static str {
        match self {
            Self::Sha1 => "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
            Self::Sha256 => "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
        }
    }
}

/// The repository of a workspace.
#[derive(Debug, Clone)]
pub(crate) struct HostRepository {
    pub(crate) workspace: PathBuf,
    pub(crate) format: ObjectFormat,
    /// The commits at which a shallow history ends, as git lists them.
    pub(crate) shallow: Option<Vec<u8>>,
}

impl HostRepository {
    /// Returns the repository in `workspace`; fails for a kind that is not supported.
    pub(crate) fn open(workspace: &Path) -> Result<Self, CommitsError> {
        let unsupported = |what: &str| Err(CommitsError::Unsupported(what.to_owned()));
        let directory = workspace.join(GIT);
        match directory.symlink_metadata() {
            Ok(found) if found.is_dir() => {}
            Ok(found) if found.is_file() => {
                return unsupported("`.git` of the workspace is a file, as in a linked worktree or a submodule");
            }
            Ok(_) => return unsupported("`.git` of the workspace is not a directory"),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return unsupported("the workspace has no repository on the host: run `git init` there");
            }
            Err(error) => return Err(error.into()),
        }
        if directory.as_os_str().as_encoded_bytes().contains(&b'\n') {
            return unsupported("the path of the workspace contains a line feed");
        }
        let format = Self::check_extensions(workspace)?;
        let shallow = match std::fs::read(directory.join("shallow")) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            content => Some(content?),
        };
        Ok(Self { workspace: workspace.to_owned(), format, shallow })
    }

    /// Returns the directory of its objects.
    pub(crate) fn objects(&self) -> PathBuf {
        self.workspace.join(GIT).join("objects")
    }

    pub(crate) fn place(&self) -> GitPlace<'_> {
        GitPlace::Host(&self.workspace)
    }

    fn check_extensions(workspace: &Path) -> Result<ObjectFormat, CommitsError> {
        let place = GitPlace::Host(workspace);
        // Fails for a repository of another user, unless the host's `safe.directory` names it.
        let found = GitCommand::new(place, ["rev-parse", "--show-object-format", "--git-dir"]).run()?;
        if !found.succeeded {
            return Err(CommitsError::Unsupported(found.message));
        }
        let pattern = r"^(extensions\.|remote\..*\.promisor$)";
        let settings = GitCommand::new(place, ["config", "-z", "--get-regexp", pattern]).run()?.text();
        for setting in settings.split('\0') {
            let (key, value) = setting.split_once('\n').unwrap_or((setting, ""));
            let is_promisor = key.ends_with(".promisor") && value != "false";
            if is_promisor || key.eq_ignore_ascii_case("extensions.partialclone") {
                return Err(CommitsError::Unsupported("the repository is a partial clone".to_owned()));
            }
            if key.eq_ignore_ascii_case("extensions.refstorage") && value != "files" {
                let what = format!("the repository stores references as `{}`", crate::review::visible(value));
                return Err(CommitsError::Unsupported(what));
            }
        }
        let format = if found.text().starts_with("sha256") { ObjectFormat::Sha256 } else { ObjectFormat::Sha1 };
        Ok(format)
    }
}
