//! Which directories of the host a session may be made on.
//!
//! Two rules, both judged on the path without links. Nobody names the root of the host, nor a directory that is or lies in
//! the data directory: there are the tokens of the API, the ledger and the records, and whoever reads files of a session
//! would read those. A directory that holds the data directory is shown without it. Beyond that a caller names what it
//! was trusted with.
//!
//! Not here: who is trusted with what (`server`), what of a directory is shown inside (`policy`).

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use policy::{EffectivePolicy, NarrowingLayer};
use store::DataDir;

use crate::SessionError;

/// The one folder of the data directory that is made to be worked on: `viv demo` does.
const DEMO: &str = "demo";

/// The directories of the host that whoever makes a session may name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum WorkspaceAccess {
    /// Whatever its own user may name.
    #[default]
    Any,
    /// These, which are without links, and what is inside them.
    Within(Arc<[PathBuf]>),
}

/// Why a directory may not be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceForbidden {
    /// It is the whole host.
    Root,
    /// It is or lies in the data directory, or holds it under a name that cannot be hidden.
    Data,
    /// The caller was not trusted with it.
    Outside,
}

impl std::fmt::Display for WorkspaceForbidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Root => "it is the whole host",
            Self::Data => "tokens, records and accounts of this host are kept there",
            Self::Outside => "it is in none of the directories that were opened to this caller",
        })
    }
}

impl WorkspaceAccess {
    /// The directory that `path` names, without links, if a session of `data` may be made on it.
    pub(crate) fn resolve(&self, path: &Path, data: &DataDir) -> Result<PathBuf, SessionError> {
        if !path.is_absolute() {
            return Err(SessionError::DirectoryNotAbsolute(path.to_owned()));
        }
        let forbidden = |why| SessionError::DirectoryNotAllowed { path: path.to_owned(), why };
        let failed = |source| SessionError::Directory { path: path.to_owned(), source };
        let canonical = match path.canonicalize() {
            Ok(canonical) => canonical,
            // Whether there is something where a caller may not look is not told either.
            Err(_) if !self.covers(path) => return Err(forbidden(WorkspaceForbidden::Outside)),
            Err(error) => return Err(failed(error)),
        };
        refuse_own(&canonical, data.root()).map_err(forbidden)?;
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

/// What no session is made on, whoever asks for it; `path` is without links.
pub(crate) fn refuse_own(path: &Path, data_dir: &Path) -> Result<(), WorkspaceForbidden> {
    if path.parent().is_none() {
        return Err(WorkspaceForbidden::Root);
    }
    // Without a data directory there is nothing in it to be read.
    let Ok(data) = data_dir.canonicalize() else { return Ok(()) };
    if path.starts_with(&data) && !path.starts_with(data.join(DEMO)) { Err(WorkspaceForbidden::Data) } else { Ok(()) }
}

/// `policy` for a session on `path`: where that holds the data directory, the session neither sees nor changes it.
pub(crate) fn hide_data(
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
    fn nobody_works_on_the_host_or_on_what_is_kept_of_it() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
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
    fn what_is_kept_of_the_host_is_not_seen_by_a_session_around_it() {
        let place = tempfile::tempdir().unwrap();
        let data = DataDir::open(place.path().join("my [data]/viv")).unwrap();
        let base = BaseLayer::preset(Preset::Open).unwrap();
        let policy = Arc::new(policy::effective(&CeilingLayer::built_in().unwrap(), &base, &[]));
        let narrowed = hide_data(&policy, place.path(), &data).unwrap();
        let allows = |policy: &EffectivePolicy, action: Action| policy.decide(&action).is_allowed();
        for path in ["my [data]/viv", "my [data]/viv/api.token", "my [data]/viv/trajectory/s.jsonl"] {
            assert!(allows(&policy, Action::Read(path.into())), "{path}");
            assert!(!allows(&narrowed, Action::Read(path.into())), "{path}");
            assert!(!allows(&narrowed, Action::Write(path.into())), "{path}");
        }
        assert!(allows(&narrowed, Action::Read("my [data]/else".into())));
        let elsewhere = tempfile::tempdir().unwrap();
        assert_eq!(hide_data(&policy, elsewhere.path(), &data).unwrap().digest(), policy.digest());
    }

    #[test]
    fn a_bound_caller_learns_nothing_of_what_is_outside() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
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
