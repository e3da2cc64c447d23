//! Sandboxes in which commands run: one port with several backends.
//!
//! A backend makes sandboxes, and a sandbox runs commands. When a sandbox is destroyed, every process in it has ended.
//! `create` fails when a backend cannot enforce the policy, so a sandbox is never silently weaker.
//!
//! Not here: the rules (`policy`), kernel calls (`jail`), agents (`agents`).

mod attach;
mod beneath;
mod blocking;
mod container;
mod environment;
mod exec;
mod fallback;
mod files;
mod host_paths;
mod jail_backend;
mod limits;
mod mask;
mod overlay;
mod plan;
mod port;
mod refusal;
mod review;
mod running;
mod stdio;
mod system_files;
mod terminal;
mod tree;
mod unconfined;
mod user_thread;

pub use attach::{OutputFilter, OutputSink, StandardStreams, attach};
pub use container::{ContainerBackend, ContainerSettings, EngineKind, EngineReport};
pub use environment::{default_environment, pass_variables};
pub use exec::{ExecResult, ExecSpec, ExecUser, OutputListener, OutputStream, ProcessExit, run, run_with_input};
pub use fallback::FallbackBackend;
pub use files::{
    ArchiveLimit, ByteRange, ByteStream, DirectoryListing, FileContent, FileEntry, FileKind, FileStat, FilesError,
    FilesFuture, OnExisting, RemovalDepth, UnpackReport, WorkspaceFiles,
};
pub use jail_backend::JailBackend;

pub use overlay::{ChangeKind, OverlayLayers, WorkspaceChange};
pub use port::{
    MODEL_URL, Sandbox, SandboxBackend, SandboxError, SandboxFuture, SandboxPort, SandboxProcess, SandboxSpec,
};
pub use review::{
    ApplyError, ApplyReport, ChangeStat, FileStamp, HostDifference, LineCount, RefusalReason, RefusedPath, SavedChange,
    SavedChanges, SavedEntry, UnsavedReason, WriteRules, apply, denying_rule, discard, finish, quoted, render_diff,
    render_stat, undo, visible,
};
pub use terminal::WindowSize;
pub use unconfined::UnconfinedBackend;
