//! Host directories that a session may use as workspace.
//!
//! Two rules apply to the path after links are resolved. No caller may use the root of the host, or the data directory
//! or a directory in it, because clients could then read API tokens, the ledger and journals as files of a session.
//! Beyond that, a caller may use the directories that it was given. If a workspace contains the data directory, the
//! policy hides it.
//!
//! Not here: which caller may use which directories (`server`), which files of a workspace are visible (`policy`).

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use policy::{EffectivePolicy, NarrowingLayer};
use store::DataDir;

use crate::SessionError;

/// The only folder of the data directory that may be a workspace; `viv demo` uses it.
const DEMO: &str = "demo";

/// The host directories that a caller may use as workspace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum WorkspaceAccess {
    /// Every directory that the host process can open.
    #[default]
    Any,
    /// These directories, given without links, and everything below them.
    Within(Arc<[PathBuf]>),
}

/// Why a directory may not be used as workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceForbidden {
    /// The directory is the root directory of the host.
    Root,
    /// The directory is in the data directory, or contains the data directory under a name that a policy cannot hide.
    Data,
    /// The caller may not use the directory.
    Outside,
}

impl std::fmt::Display for WorkspaceForbidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Root => "it is the root directory of the host",
            Self::Data => "it holds tokens, journals and the ledger of this host",
            Self::Outside => "it is outside the directories that this caller may use",
        })
    }
}

impl WorkspaceAccess {
    /// Returns `path` without links; fails when a session may not use the directory.
    pub(crate) fn resolve(&self, path: &Path, data: &DataDir) -> Result<PathBuf, SessionError> {
        if !path.is_absolute() {
            return Err(SessionError::DirectoryNotAbsolute(path.to_owned()));
        }
        let forbidden = |why| SessionError::DirectoryNotAllowed { path: path.to_owned(), why };
        let failed = |source| SessionError::Directory { path: path.to_owned(), source };
        let canonical = match path.canonicalize() {
            Ok(canonical) => canonical,
            // A caller does not learn whether a directory outside its own exists.
            Err(_) if !self.covers(path) => return Err(forbidden(WorkspaceForbidden::Outside)),
            Err(error) => return Err(failed(error)),
        };
        refuse_reserved(&canonical, data.root()).map_err(forbidden)?;
        if !self.covers(&canonical) {
            return Err(forbidden(WorkspaceForbidden::Outside));
        }
        match canonical.metadata() {
            Ok(metadata) if metadata.is_dir() => Ok(canonical),
            Ok(_) => Err(failed(std::io::ErrorKind::NotADirectory.into())),
            Err(error) => Err(failed(error)),
        }
    }

    fn covers(&self, path: &Path) -> bool {
        match self {
            Self::Any => true,
            Self::Within(roots) => {
                !path.components().any(|part| part == Component::ParentDir)
                    && roots.iter().any(|root| path.starts_with(root))
            }
        }
    }
}

/// Fails for directories that no caller may use. `path` must be without links.
pub(crate) fn refuse_reserved(path: &Path, data_dir: &Path) -> Result<(), WorkspaceForbidden> {
    if path.parent().is_none() {
        return Err(WorkspaceForbidden::Root);
    }
    // A missing data directory needs no protection.
    let Ok(data) = data_dir.canonicalize() else { return Ok(()) };
    if path.starts_with(&data) && !path.starts_with(data.join(DEMO)) { Err(WorkspaceForbidden::Data) } else { Ok(()) }
}

/// Returns `policy` for a session on `path`. If `path` contains the data directory, the policy hides it.
pub(crate) fn hide_data_dir(
    policy: &Arc<EffectivePolicy>,
    path: &Path,
    data: &DataDir,
) -> Result<Arc<EffectivePolicy>, SessionError> {
    let (Ok(data), Ok(there)) = (data.root().canonicalize(), path.canonicalize()) else { return Ok(policy.clone()) };
    let Some(inside) = data.strip_prefix(there).ok().filter(|inside| !inside.as_os_str().is_empty()) else {
        return Ok(policy.clone());
    };
    let forbidden = || SessionError::DirectoryNotAllowed { path: path.to_owned(), why: WorkspaceForbidden::Data };
    let hiding = NarrowingLayer::hiding(inside.to_str().ok_or_else(forbidden)?)?;
    Ok(Arc::new(policy.narrowed(&[hiding])?))
}

#[cfg(test)]
mod tests {
    use policy::{Action, BaseLayer, CeilingLayer, Preset};

    use super::*;

    #[track_caller]
    fn check(workspaces: &WorkspaceAccess, path: &Path, data: &DataDir) -> Option<WorkspaceForbidden> {
        match workspaces.resolve(path, data) {
            Ok(_) => None,
            Err(SessionError::DirectoryNotAllowed { why, .. }) => Some(why),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn root_and_data_directory_are_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().canonicalize().unwrap();
        let data = DataDir::open(root.join("home/data")).unwrap();
        for folder in ["home/project", "home/data/demo", "home/data/demo2", "home/database"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::os::unix::fs::symlink(root.join("home/data"), root.join("link")).unwrap();
        let any = WorkspaceAccess::Any;
        assert_eq!(check(&any, Path::new("/"), &data), Some(WorkspaceForbidden::Root));
        assert_eq!(
            check(&any, &root.join("home/project/../../../../../../../../../.."), &data),
            Some(WorkspaceForbidden::Root)
        );
        for own in ["home/data", "home/data/trajectory", "link", "link/trajectory", "home/data/demo2"] {
            assert_eq!(check(&any, &root.join(own), &data), Some(WorkspaceForbidden::Data), "{own}");
        }
        for other in ["home", "home/project", "home/data/demo", "home/database"] {
            assert_eq!(check(&any, &root.join(other), &data), None, "{other}");
        }
    }

    #[test]
    fn data_directory_inside_a_workspace_is_hidden() {
        let temporary = tempfile::tempdir().unwrap();
        let data = DataDir::open(temporary.path().join("my [data]/viv")).unwrap();
        let base = BaseLayer::preset(Preset::Open).unwrap();
        let policy = Arc::new(policy::effective(&CeilingLayer::built_in().unwrap(), &base, &[]));
        let narrowed = hide_data_dir(&policy, temporary.path(), &data).unwrap();
        let allows = |policy: &EffectivePolicy, action: Action| policy.decide(&action).is_allowed();
        for path in ["my [data]/viv", "my [data]/viv/api.token", "my [data]/viv/trajectory/s.jsonl"] {
            assert!(allows(&policy, Action::Read(path.into())), "{path}");
            assert!(!allows(&narrowed, Action::Read(path.into())), "{path}");
            assert!(!allows(&narrowed, Action::Write(path.into())), "{path}");
        }
        assert!(allows(&narrowed, Action::Read("my [data]/else".into())));
        let elsewhere = tempfile::tempdir().unwrap();
        assert_eq!(hide_data_dir(&policy, elsewhere.path(), &data).unwrap().digest(), policy.digest());
    }

    #[test]
    fn restricted_caller_is_refused_outside_its_directories() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().canonicalize().unwrap();
        let data = DataDir::open(root.join("data")).unwrap();
        for folder in ["open/project", "openly", "closed"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::os::unix::fs::symlink(root.join("closed"), root.join("open/link")).unwrap();
        let bound = WorkspaceAccess::Within([root.join("open")].into());
        assert_eq!(check(&bound, &root.join("open"), &data), None);
        assert_eq!(check(&bound, &root.join("open/project"), &data), None);
        for outside in ["closed", "openly", "open/link", "open/../closed", "nowhere", "open/../nowhere", "data"] {
            assert!(check(&bound, &root.join(outside), &data).is_some(), "{outside}");
        }
        let missing = bound.resolve(&root.join("open/nowhere"), &data);
        assert!(matches!(missing, Err(SessionError::Directory { .. })), "{missing:?}");
        assert_eq!(
            check(&WorkspaceAccess::Within([].into()), &root.join("open"), &data),
            Some(WorkspaceForbidden::Outside)
        );
    }
}
