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

pub use attach::{Filter, Outflow, Streams, attach};
pub use choice::FirstThatWorks;
pub use container::{ContainerBackend, ContainerSettings, EngineKind, EngineReport};
pub use environment::{default_environment, pass_variables};
pub use exec::{ExecResult, ExecSpec, Exit, OutputListener, OutputStream, User, run, run_with_input};
pub use files::{
    ArchiveCap, ByteRange, ByteStream, Content, Depth, Existing, FileEntry, FileKind, FileStat, Files, FilesError,
    FilesFuture, Listing, Unpacked,
};
pub use jailed::JailBackend;
pub use mask::masks;
pub use overlay::{Change, ChangeKind, Layers};
pub use port::{
    Backend, DEPENDENCIES, EGRESS_PORT, MODEL_URL, Port, Process, Sandbox, SandboxError, SandboxFuture, SandboxSpec,
};
pub use review::{
    Applied, ApplyError, ChangeStat, Difference, Entry, LineCount, Reason, Refusal, Rules, SavedChange, SavedChanges,
    Stamp, UnsavedReason, apply, denying, discard, finish, quoted, render_diff, render_stat, undo, visible,
};
pub use terminal::WindowSize;
pub use unconfined::Unconfined;
