//! A workspace whose changes a person reviews: scripts run in its sandbox, and the host saves, shows and applies.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandbox::{
    ApplyError, ApplyOptions, ApplyReport, ExecSpec, OverlayLayers, Sandbox, SandboxProcess, SavedChanges, SavedEntry,
};

use crate::attack::Walls;
use crate::raw::{self, Arg};
use crate::scene::Scene;
use crate::stage::Stage;

/// The paths below a directory, each with its type, permissions and content.
pub(crate) type Tree = BTreeMap<PathBuf, (char, u32, Vec<u8>)>;

/// A workspace, its sandbox, and the saved changes.
pub(crate) struct ReviewedWorkspace<'a> {
    stage: &'a Stage,
    scene: Scene,
    sandbox: Box<dyn Sandbox>,
    layers: OverlayLayers,
}

impl<'a> ReviewedWorkspace<'a> {
    /// Creates a workspace with a few files, and a sandbox over it.
    pub(crate) fn new(stage: &'a Stage) -> Self {
        let scene = stage.scene();
        let directory = scene.outside().join("reviewed");
        fs::create_dir_all(directory.join("kept")).expect("workspace");
        for name in ["note", "kept/one", "kept/two"] {
            fs::write(directory.join(name), format!("{name} of the host\n")).expect("file");
            fs::set_permissions(directory.join(name), PermissionsExt::from_mode(0o644)).expect("mode");
        }
        let sandbox = stage.sandbox(Walls::Usual, &directory).expect("sandbox");
        let layers = sandbox.layers().expect("layers");
        Self { stage, scene, sandbox, layers }
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.scene.outside().join("reviewed")
    }

    pub(crate) fn saved(&self) -> PathBuf {
        self.scene.outside().join("saved")
    }

    /// Returns a path to the upper layer.
    pub(crate) fn upper(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.layers.upper.as_raw_fd()).into()
    }

    /// Runs a script in the sandbox to its end.
    pub(crate) fn inside(&self, script: &str) {
        let mut listener = |_, _: &[u8]| {};
        let running = sandbox::run(&*self.sandbox, shell(script), &mut listener);
        let result = self.stage.runtime.block_on(running).expect("run");
        let error = String::from_utf8_lossy(&result.stderr);
        assert_eq!(result.exit.code, Some(0), "`{script}` failed: {error}");
    }

    /// Starts a script in the sandbox.
    pub(crate) fn start(&self, script: &str) -> SandboxProcess {
        self.stage.runtime.block_on(self.sandbox.exec(shell(script))).expect("exec")
    }

    /// Rewrites a file of the upper layer, as a process inside would. Only the sandbox can create one.
    pub(crate) fn upper_file(&self, path: &str, content: &str) {
        fs::write(self.upper().join(path), content).expect("file");
    }

    /// Returns the content of a file in the upper layer as it is now.
    pub(crate) fn live(&self, path: &str) -> Option<Vec<u8>> {
        self.layers.after(Path::new(path), 1 << 20).expect("layer")
    }

    /// Saves the changes, as at the end of a turn.
    pub(crate) fn save(&self) -> SavedChanges {
        SavedChanges::save(&self.layers, &self.saved()).expect("save")
    }

    /// Ends the sandbox and saves the changes for the last time.
    pub(crate) fn end(&self) {
        self.stage.destroy(&*self.sandbox);
        SavedChanges::save_final(&self.layers, &self.saved()).expect("save");
    }

    pub(crate) fn apply(&self, set: &mut SavedChanges) -> Result<ApplyReport, ApplyError> {
        sandbox::apply(set, &self.directory(), &ApplyOptions::default(), &|_| None)
    }

    /// Returns the workspace on the host.
    pub(crate) fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        let mut open = vec![self.directory()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(directory).expect("directory") {
                let path = entry.expect("entry").path();
                let metadata = path.symlink_metadata().expect("metadata");
                let mode = metadata.permissions().mode() & 0o7777;
                let found = if metadata.is_dir() {
                    open.push(path.clone());
                    ('d', mode, Vec::new())
                } else if metadata.is_symlink() {
                    ('l', 0, fs::read_link(&path).expect("link").as_os_str().as_bytes().to_vec())
                } else {
                    ('-', mode, fs::read(&path).expect("file"))
                };
                tree.insert(path.strip_prefix(self.directory()).expect("below").to_owned(), found);
            }
        }
        tree
    }

    /// Returns the workspace as it is after an apply of the shown set. Reads the contents now, when the person looks.
    pub(crate) fn after(&self, shown: &SavedChanges) -> Tree {
        let mut tree = self.tree();
        for change in shown.changes() {
            tree.remove(&change.path);
            let entry = match &change.entry {
                None => continue,
                Some(SavedEntry::Regular { mode, .. }) => ('-', *mode, shown.read(&change.path).expect("content")),
                Some(SavedEntry::Directory { mode }) => ('d', *mode, Vec::new()),
                Some(SavedEntry::Symlink { target }) => ('l', 0, target.as_os_str().as_bytes().to_vec()),
                Some(other) => panic!("`{}` is {other:?}", change.path.display()),
            };
            tree.insert(change.path.clone(), entry);
        }
        tree
    }
}

fn shell(script: &str) -> ExecSpec {
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    ExecSpec { command, timeout: Some(Duration::from_secs(20)), ..ExecSpec::default() }
}

/// The program of an attacker that writes through a memory mapping: replaces the first bytes of a file.
pub(crate) fn write_mapped(mut arguments: impl Iterator<Item = String>) {
    let (path, text) = (arguments.next().expect("path"), arguments.next().expect("text"));
    let file = fs::File::options().read(true).write(true).open(path).expect("file");
    let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    let numbers = [0, 4096, i64::from(access), i64::from(shared), i64::from(file.as_raw_fd()), 0];
    let address = raw::call(libc::SYS_mmap, &mut numbers.map(Arg::Number)).expect("mmap");
    // The kernel writes the bytes of a pipe to the mapped page.
    let (reader, mut writer) = std::io::pipe().expect("pipe");
    std::io::Write::write_all(&mut writer, text.as_bytes()).expect("write");
    let length = i64::try_from(text.len()).expect("length");
    let numbers = [i64::from(reader.as_raw_fd()), address, length];
    raw::call(libc::SYS_read, &mut numbers.map(Arg::Number)).expect("read");
}
