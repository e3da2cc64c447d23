//! Where commands run: one port, several backends.
//!
//! A backend makes sandboxes; a sandbox runs commands, and when it is destroyed every process in it is
//! dead. What a backend cannot enforce makes `create` fail: nothing is ever silently weaker.
//!
//! Not here: what is allowed (`policy`), kernel calls (`jail`), agents (`agents`).

mod attach;
mod beneath;
mod choice;
mod container;
mod ends;
mod environment;
mod exec;
mod files;
mod inside;
mod jailed;
mod limits;
mod mask;
mod overlay;
mod plan;
mod port;
mod refusal;
mod review;
mod source;
mod system;
mod terminal;
mod tree;
mod unconfined;
mod walled;

pub use attach::{OutputFilter, OutputSink, StandardStreams, attach};
pub use choice::FallbackBackend;
pub use container::{ContainerBackend, ContainerSettings, EngineKind, EngineReport};
pub use environment::{default_environment, pass_variables};
pub use exec::{ExecResult, ExecSpec, ExecUser, OutputListener, OutputStream, ProcessExit, run, run_with_input};
pub use files::{
    ArchiveLimit, ByteRange, ByteStream, DirectoryListing, FileContent, FileEntry, FileKind, FileStat, FilesError,
    FilesFuture, OnExisting, RemovalDepth, UnpackReport, WorkspaceFiles,
};
pub use jailed::JailBackend;
pub use mask::masks;
pub use overlay::{ChangeKind, OverlayLayers, WorkspaceChange};
pub use port::{
    MODEL_URL, Sandbox, SandboxBackend, SandboxError, SandboxFuture, SandboxPort, SandboxProcess, SandboxSpec,
};
pub use review::{
    ApplyError, ApplyReport, ChangeStat, FileStamp, HostDifference, LineCount, RefusalReason, RefusedPath, SavedChange,
    SavedChanges, SavedEntry, UnsavedReason, WriteRules, apply, denying, discard, finish, quoted, render_diff,
    render_stat, undo, visible,
};
pub use terminal::WindowSize;
pub use unconfined::UnconfinedBackend;
