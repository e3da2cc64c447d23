//! Our own terminal while it shows a program of a sandbox: raw mode, keys of `viv` itself, and the way to the session's
//! terminal.
//!
//! The program never gets our terminal. Its output was filtered where the session runs, and is filtered again here,
//! because the server may be another build.

mod input;
mod keys;
mod link;
mod raw;
mod show;

pub(crate) use keys::{DetachPrefix, KeyReader, TypedKey};
pub(crate) use link::TerminalLink;
pub(crate) use raw::{RawTerminal, window_size};
pub(crate) use show::{ScreenEnd, ScreenKeys, show};
