//! Toolchains of the host that a sandbox shows: compilers, runtimes and the caches of package managers.
//!
//! Programs are read-only. A cache is the lower layer of an overlay whose upper layer is lost with the sandbox, so the
//! host's cache never changes. Credentials in these directories do not exist inside. Finding them takes a few `stat`
//! calls and starts no process.
//!
//! Not here: reading the environment. The caller passes a function that looks variables up.

mod redact;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use base::HOME;
use jail::{BindMount, CoverFile, LayerPlan};
use policy::EffectivePolicy;
use protocol::{EnforcedValue, KeyEnforcement};

use table::{OFFLINE_VARIABLES, TREES, ToolTree, TreeKind, VARIABLES};

/// The largest settings file that is shown without its credentials. A larger one is hidden.
const MAX_SETTINGS_BYTES: u64 = 1 << 20;
/// The most links of one toolchain whose targets are shown.
const MAX_LINKS: usize = 64;
/// Directories that presets show already. Nothing in them is mounted again.
const SYSTEM: [&str; 5] = ["/usr", "/bin", "/sbin", "/lib", "/lib64"];

/// The toolchains of the host that one sandbox shows.
#[derive(Debug, Clone, Default)]
pub struct Toolchains {
    trees: Vec<ShownTree>,
    /// Targets of links in the trees.
    link_targets: BTreeSet<PathBuf>,
    /// Directories of the host's PATH that are shown, in its order, then those of the table.
    path: Vec<String>,
    variables: BTreeMap<String, String>,
    /// Directories that are not shown because the workspace contains them.
    in_workspace: Vec<PathBuf>,
}

/// A directory that is shown at its own path.
#[derive(Debug, Clone)]
struct ShownTree {
    tool: &'static str,
    /// The path on the host, as tools name it.
    path: PathBuf,
    /// The path without links.
    real: PathBuf,
    /// The path in the home inside that leads to it.
    link: Option<PathBuf>,
    is_cache: bool,
    masks: Vec<PathBuf>,
    covers: Vec<CoverFile>,
}

impl Toolchains {
    /// Finds the toolchains that `policy` shows. `look_up` returns variables of the host, and `workspace` is the path of the
    /// workspace without links. Without a variable `HOME` there are none.
    pub fn find(look_up: impl Fn(&str) -> Option<String>, workspace: Option<&Path>, policy: &EffectivePolicy) -> Self {
        let mut found = Self::default();
        let Some(home) = look_up("HOME").map(PathBuf::from).filter(|home| home.is_absolute()) else { return found };
        for tree in TREES.iter().filter(|tree| policy.shows_toolchain(tree.tool)) {
            found.add_tree(tree, &home, &look_up, workspace);
        }
        // A directory is mounted before those in it.
        found.trees.sort_by_key(|tree| tree.path.components().count());
        let is_offline = !policy.net().is_open();
        found.add_variables(is_offline);
        found.add_path(look_up("PATH").unwrap_or_default().as_str(), workspace);
        found
    }

    fn add_tree(
        &mut self,
        tree: &ToolTree,
        home: &Path,
        look_up: impl Fn(&str) -> Option<String>,
        workspace: Option<&Path>,
    ) {
        let named = Some(tree.variable).filter(|name| !name.is_empty()).and_then(look_up).map(PathBuf::from);
        let named = named.filter(|path| is_plain(path));
        let path = named.clone().unwrap_or_else(|| home.join(tree.directory));
        let Some(real) = path.canonicalize().ok().filter(|real| real.is_dir() && is_tool_directory(real, home)) else {
            return;
        };
        // A workspace in a tree is mounted over it, which hides its files only if the tree has one path.
        let is_unsafe =
            |workspace: &Path| real.starts_with(workspace) || (workspace.starts_with(&real) && real != path);
        if workspace.is_some_and(is_unsafe) {
            self.in_workspace.push(path);
            return;
        }
        // Another row, such as GOPATH for GOMODCACHE, shows the directory already.
        if self.trees.iter().any(|shown| real.starts_with(&shown.real)) {
            return;
        }
        if let Some(path) = named.as_ref().and_then(|path| path.to_str()) {
            self.variables.insert(tree.variable.to_owned(), path.to_owned());
        }
        let link = Some(Path::new(HOME).join(tree.directory)).filter(|link| *link != path);
        let (masks, covers) = credentials(&real, tree);
        self.link_targets.extend(link_targets(&real, tree, workspace));
        self.path.extend(tree.programs.iter().filter_map(|programs| {
            let directory = if programs.is_empty() { path.clone() } else { path.join(programs) };
            directory.is_dir().then(|| directory.to_string_lossy().into_owned())
        }));
        let is_cache = tree.kind == TreeKind::Cache;
        self.trees.push(ShownTree { tool: tree.tool, path, real, link, is_cache, masks, covers });
    }

    fn add_variables(&mut self, is_offline: bool) {
        let offline: &[_] = if is_offline { OFFLINE_VARIABLES } else { &[] };
        for (tool, name, value) in VARIABLES.iter().chain(offline) {
            if self.trees.iter().any(|tree| tree.tool == *tool) {
                self.variables.insert((*name).to_owned(), (*value).to_owned());
            }
        }
        let store = self.trees.iter().find(|tree| tree.path.ends_with(".local/share/pnpm"));
        if let Some(store) = store.map(|tree| tree.path.join("store").to_string_lossy().into_owned()) {
            // pnpm otherwise makes a store in the project, because the home is another file system.
            self.variables.insert("pnpm_config_store_dir".to_owned(), store.clone());
            self.variables.insert("npm_config_store_dir".to_owned(), store);
        }
    }

    /// Puts the directories of the host's PATH that are shown before those of the table: the host has chosen the version
    /// there. A link of one shell, such as that of fnm, is replaced by its target.
    fn add_path(&mut self, host: &str, workspace: Option<&Path>) {
        let mut path = Vec::new();
        for entry in host.split(':').map(Path::new).filter(|entry| is_plain(entry)) {
            if workspace.is_some_and(|workspace| entry.starts_with(workspace)) {
                continue;
            }
            let Ok(real) = entry.canonicalize() else { continue };
            let shown = if self.shows(entry) {
                entry
            } else if self.shows(&real) {
                &real
            } else {
                continue;
            };
            path.push(shown.to_string_lossy().into_owned());
        }
        path.append(&mut self.path);
        for directory in path {
            if !self.path.contains(&directory) {
                self.path.push(directory);
            }
        }
    }

    fn shows(&self, path: &Path) -> bool {
        self.trees.iter().any(|tree| path.starts_with(&tree.path) || path.starts_with(&tree.real))
            || self.link_targets.iter().any(|target| path.starts_with(target))
    }

    /// Sets the variables, and puts the programs before the PATH of `env`. Variables that are set already stay.
    pub fn add_to(&self, env: &mut BTreeMap<String, String>) {
        for (name, value) in &self.variables {
            env.entry(name.clone()).or_insert_with(|| value.clone());
        }
        if !self.path.is_empty() {
            let rest = env.get("PATH").map(|path| format!(":{path}")).unwrap_or_default();
            env.insert("PATH".to_owned(), format!("{}{rest}", self.path.join(":")));
        }
    }

    /// Returns the tools that were found, each with its directories on the host.
    pub fn list(&self) -> BTreeMap<&'static str, Vec<PathBuf>> {
        let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for tree in &self.trees {
            all.entry(tree.tool).or_default().push(tree.path.clone());
        }
        all
    }

    /// Returns the row of `policy.effective`.
    pub(crate) fn effective_row(&self) -> KeyEnforcement {
        let paths = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect();
        let found = self.list().into_iter().map(|(tool, directories)| (tool.to_owned(), paths(&directories))).collect();
        let by = "read-only mounts; caches: overlayfs with a private layer";
        let without_credentials = self.trees.iter().flat_map(|tree| {
            let covers = tree.covers.iter().map(|cover| cover.path.as_path());
            tree.masks.iter().map(PathBuf::as_path).chain(covers).map(|path| tree.path.join(path).display().to_string())
        });
        KeyEnforcement {
            without_credentials: without_credentials.collect(),
            in_workspace: paths(&self.in_workspace),
            ..KeyEnforcement::enforced(by).with_value(EnforcedValue::Toolchains(found))
        }
    }

    /// Returns the layers of a plan.
    pub(crate) fn layers(&self) -> Vec<LayerPlan> {
        let layer = |tree: &ShownTree| LayerPlan {
            directory: tree.real.clone(),
            target: tree.path.clone(),
            writable: tree.is_cache,
            masks: tree.masks.clone(),
            covers: tree.covers.clone(),
        };
        self.trees.iter().map(layer).collect()
    }

    /// Returns the mounts for targets of links.
    pub(crate) fn binds(&self) -> Vec<BindMount> {
        let outside = self.link_targets.iter().filter(|target| {
            !self.trees.iter().any(|tree| target.starts_with(&tree.path) || target.starts_with(&tree.real))
        });
        outside.map(|path| BindMount { source: path.clone(), target: path.clone(), writable: false }).collect()
    }

    /// Returns the links of the home inside.
    pub(crate) fn links(&self) -> Vec<(PathBuf, PathBuf)> {
        self.trees.iter().filter_map(|tree| Some((tree.link.clone()?, tree.path.clone()))).collect()
    }
}

/// Returns whether a path is absolute, without `..`, and can be an entry of PATH.
fn is_plain(path: &Path) -> bool {
    path.is_absolute()
        && path.to_str().is_some_and(|text| !text.contains([':', '\n']))
        && path.components().skip(1).all(|part| matches!(part, Component::Normal(_)))
}

/// Returns whether a directory can be one of a toolchain: not the home, and not a directory of the system.
fn is_tool_directory(real: &Path, home: &Path) -> bool {
    let is_system = SYSTEM.iter().any(|system| real.starts_with(system)) && !real.starts_with("/usr/local");
    let covers = |other: &str| Path::new(other).starts_with(real);
    !is_system
        && !home.starts_with(real)
        && home.canonicalize().is_ok_and(|home| !home.starts_with(real))
        && !["/usr/local", "/tmp", "/etc", "/proc", "/dev", "/var", "/opt", HOME, base::WORKSPACE]
            .iter()
            .any(|path| covers(path))
}

/// Returns the paths of `tree` that are hidden and those that have other content, relative to its directory.
fn credentials(real: &Path, tree: &ToolTree) -> (Vec<PathBuf>, Vec<CoverFile>) {
    let mut masks: Vec<PathBuf> = tree.hidden.iter().flat_map(|pattern| expand(real, pattern)).collect();
    let mut covers = Vec::new();
    for (pattern, format) in tree.redacted {
        for path in expand(real, pattern) {
            let Ok(found) = real.join(&path).metadata() else {
                masks.push(path);
                continue;
            };
            let text = (found.is_file() && found.len() <= MAX_SETTINGS_BYTES)
                .then(|| std::fs::read_to_string(real.join(&path)).ok())
                .flatten();
            match text {
                Some(text) => covers.push(CoverFile { path, content: redact::redact(&text, *format).into_bytes() }),
                None => masks.push(path),
            }
        }
    }
    masks.sort();
    masks.dedup();
    (masks, covers)
}

/// Returns the paths below `real` that `pattern` names. The last name need not exist, its directory must.
fn expand(real: &Path, pattern: &str) -> Vec<PathBuf> {
    let (parents, last) = pattern.rsplit_once('/').unwrap_or(("", pattern));
    let directories = directories(real, parents);
    if last.contains('*') {
        let end = last.trim_start_matches('*');
        let all = directories.into_iter().flat_map(|directory| names(real, &directory));
        return all.filter(|path| path.to_string_lossy().ends_with(end)).collect();
    }
    directories.into_iter().map(|directory| directory.join(last)).collect()
}

/// Returns the directories below `real` that `pattern` names. Links are not followed.
fn directories(real: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut all = vec![PathBuf::new()];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let next = |directory: PathBuf| if part == "*" { names(real, &directory) } else { vec![directory.join(part)] };
        let is_directory = |path: &PathBuf| real.join(path).symlink_metadata().is_ok_and(|found| found.is_dir());
        all = all.into_iter().flat_map(next).filter(is_directory).collect();
    }
    all
}

fn names(real: &Path, directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(real.join(directory)) else { return Vec::new() };
    entries.flatten().map(|entry| directory.join(entry.file_name())).collect()
}

/// Returns whether a link to `target` is one to a toolchain or program: a directory with `bin`, or an executable file.
fn is_program(target: &Path) -> bool {
    let is_executable = |found: std::fs::Metadata| found.is_file() && found.permissions().mode() & 0o111 != 0;
    target.join("bin").is_dir() || target.metadata().is_ok_and(is_executable)
}

/// Returns the targets of links in `tree` that are elsewhere, without links.
fn link_targets(real: &Path, tree: &ToolTree, workspace: Option<&Path>) -> Vec<PathBuf> {
    let mut targets = Vec::new();
    for pattern in tree.links {
        for directory in directories(real, pattern) {
            for entry in names(real, &directory) {
                let path = real.join(entry);
                if !path.is_symlink() {
                    continue;
                }
                let Ok(target) = path.canonicalize() else { continue };
                let is_system = SYSTEM.iter().any(|system| target.starts_with(system));
                let overlaps = |workspace: &Path| target.starts_with(workspace) || workspace.starts_with(&target);
                let is_elsewhere = !target.starts_with(real) && !is_system && !workspace.is_some_and(overlaps);
                if is_elsewhere && is_plain(&target) && is_program(&target) && targets.len() < MAX_LINKS {
                    targets.push(target);
                }
            }
        }
    }
    targets
}
