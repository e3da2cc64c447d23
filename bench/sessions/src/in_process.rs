//! A sandbox backend for agents that are tasks of this process: no isolation, no files, no network.

use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::sync::Mutex;

use base::lock;
use protocol::{EnforcementState, KeyEnforcement, KeyEnforcements};
use sandbox::{
    ArchiveLimit, ByteRange, ByteStream, DirectoryListing, ExecSpec, FileContent, FileStat, FilesError, FilesFuture,
    OnExisting, OverlayLayers, ProcessExit, RemovalDepth, Sandbox, SandboxBackend, SandboxFuture, SandboxPort,
    SandboxProcess, SandboxSpec, UnpackReport, WorkspaceFiles,
};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::agent;

/// Size of the pipes to and from an agent.
const PIPE_BYTES: usize = 4 << 10;

/// The backend.
pub(crate) struct InProcess;

impl SandboxBackend for InProcess {
    fn name(&self) -> &'static str {
        "in-process"
    }

    fn create(&self, spec: SandboxSpec) -> SandboxFuture<'_, Box<dyn Sandbox>> {
        Box::pin(
            async move { Ok(Box::new(InProcessSandbox { id: spec.id, agent: Mutex::default() }) as Box<dyn Sandbox>) },
        )
    }
}

struct InProcessSandbox {
    id: String,
    agent: Mutex<Option<AbortHandle>>,
}

impl Sandbox for InProcessSandbox {
    fn id(&self) -> &str {
        &self.id
    }

    fn take_listener(&self, _: SandboxPort) -> Option<TcpListener> {
        None
    }

    fn take_dns_sockets(&self) -> Option<(TcpListener, UdpSocket)> {
        None
    }

    fn exec(&self, _: ExecSpec) -> SandboxFuture<'_, SandboxProcess> {
        Box::pin(async move {
            let (stdin, input) = tokio::io::duplex(PIPE_BYTES);
            let (output, stdout) = tokio::io::duplex(PIPE_BYTES);
            let (ended, end) = oneshot::channel();
            let task = tokio::spawn(async move {
                // A write fails only when the reader is gone.
                let _ = agent::run(input, output).await;
                let _ = ended.send(());
            });
            *lock(&self.agent) = Some(task.abort_handle());
            let exit = async move {
                // The channel closes also when the task is aborted.
                let _ = end.await;
                Ok(ProcessExit { code: Some(0), ..ProcessExit::default() })
            };
            Ok(SandboxProcess {
                stdin: Some(Box::new(stdin)),
                stdout: Box::new(stdout),
                stderr: Box::new(tokio::io::empty()),
                resize: Box::new(|_| {}),
                kill: Box::new(|| {}),
                exit: Box::pin(exit),
            })
        })
    }

    fn files(&self) -> &dyn WorkspaceFiles {
        &NoFiles
    }

    fn effective(&self) -> KeyEnforcements {
        let absent = KeyEnforcement::new(EnforcementState::Absent, "in-process");
        ["fs", "net"].into_iter().map(|key| (key.to_owned(), absent.clone())).collect()
    }

    fn layers(&self) -> Option<OverlayLayers> {
        None
    }

    fn destroy(&self) -> SandboxFuture<'_, ()> {
        Box::pin(async move {
            if let Some(agent) = lock(&self.agent).take() {
                agent.abort();
            }
            Ok(())
        })
    }
}

/// A workspace without files.
struct NoFiles;

fn none<T>(path: &Path) -> FilesFuture<'_, T> {
    Box::pin(async move { Err(FilesError::NotFound(path.to_owned())) })
}

impl WorkspaceFiles for NoFiles {
    fn stat<'a>(&'a self, path: &'a Path) -> FilesFuture<'a, FileStat> {
        none(path)
    }

    fn list<'a>(&'a self, path: &'a Path, _: usize) -> FilesFuture<'a, DirectoryListing> {
        none(path)
    }

    fn read<'a>(&'a self, path: &'a Path, _: ByteRange) -> FilesFuture<'a, FileContent> {
        none(path)
    }

    fn write<'a>(&'a self, path: &'a Path, _: ByteStream, _: u64) -> FilesFuture<'a, u64> {
        none(path)
    }

    fn make_directory<'a>(&'a self, path: &'a Path) -> FilesFuture<'a, ()> {
        none(path)
    }

    fn rename<'a>(&'a self, from: &'a Path, _: &'a Path, _: OnExisting) -> FilesFuture<'a, ()> {
        none(from)
    }

    fn remove<'a>(&'a self, path: &'a Path, _: RemovalDepth) -> FilesFuture<'a, ()> {
        none(path)
    }

    fn pack<'a>(&'a self, path: &'a Path, _: ArchiveLimit) -> FilesFuture<'a, ByteStream> {
        none(path)
    }

    fn unpack<'a>(&'a self, path: &'a Path, _: ByteStream, _: ArchiveLimit) -> FilesFuture<'a, UnpackReport> {
        none(path)
    }
}
