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
mod hard_links;
mod hidden_files;
mod host_paths;
mod jail_backend;
mod limits;
mod mask;
mod overlay;
mod plan;
mod port;
mod ports;
mod processes;
mod refusal;
mod review;
mod running;
mod stdio;
mod system_files;
mod terminal;
mod toolchains;
mod tree;
mod unconfined;
mod user_thread;
mod workspace_path;

pub use attach::{OutputFilter, OutputSink, StandardStreams, attach};
pub use container::{ContainerBackend, ContainerSettings, EngineKind, EngineReport};
pub use environment::{default_environment, pass_variables};
pub use exec::{
    ExecResult, ExecSpec, ExecUser, OutputListener, OutputStream, ProcessExit, StreamKind, run, run_with_input,
};
pub use fallback::FallbackBackend;
pub use files::{
    ArchiveLimit, ByteRange, ByteStream, DirectoryListing, FileContent, FileEntry, FileKind, FileStat, FilesError,
    FilesFuture, OnExisting, RemovalDepth, UnpackReport, WorkspaceFiles,
};
pub use hidden_files::HiddenFiles;
pub use jail_backend::JailBackend;

pub use overlay::{ChangeKind, OverlayLayers, WorkspaceChange};
pub use port::{
    MODEL_URL, Sandbox, SandboxBackend, SandboxError, SandboxFuture, SandboxPort, SandboxProcess, SandboxSpec,
};
pub use ports::{InsidePort, is_reserved_port};
pub use processes::InsideProcess;
pub use review::{
    AppliedCommits, Commit, CommitChange, CommitFile, CommitTip, CommitsError, GitIdentity, ImportedTip,
    RepositoryStart, SessionCommits, SkippedReference, TipRelation, apply_commits, commit_patch, commit_tips,
    import_commits, is_inside_git_directory, remove_imported_commits, render_commits,
};
pub use review::{
    ApplyError, ApplyOptions, ApplyReport, ChangeStat, ClassName, FileStamp, HostDifference, LeftOut, LineCount,
    PathClass, RefusalReason, RefusedPath, RunKind, SavedChange, SavedChanges, SavedEntry, SetDifference, SetNote,
    SetOrigin, SetSummary, UnsavedReason, WriteRules, apply, compare_sets, denying_rule, discard, finish, quoted,
    render_diff, render_stat, undo, visible,
};
pub use terminal::WindowSize;
pub use toolchains::Toolchains;
pub use unconfined::UnconfinedBackend;
