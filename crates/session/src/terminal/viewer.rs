//! One viewer of a terminal: a person's terminal, or a browser.
//!
//! Each viewer has a bounded buffer. A viewer that reads too slowly loses the buffer and gets the present screen
//! instead, so that no viewer can hold up the agent or the memory of the host.

use std::sync::{Arc, Mutex};

use base::lock;
use sandbox::WindowSize;
use tokio::sync::Notify;

use super::SessionTerminal;

/// The most bytes that wait for one viewer.
const BUFFER_CAP: usize = 1 << 20;

/// The rights of a viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewerAccess {
    /// Sees the screen.
    Watch,
    /// Sees the screen, types and resizes.
    Type,
}

/// Something that a viewer must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalUpdate {
    /// Bytes for the viewer's terminal.
    Output(Vec<u8>),
    /// Another viewer changed the size of the window.
    Resized(WindowSize),
}

/// The buffer of a viewer, shared with the terminal.
#[derive(Clone)]
pub(super) struct ViewerQueue(Arc<ViewerShared>);

struct ViewerShared {
    id: u64,
    state: Mutex<ViewerState>,
    changed: Notify,
}

#[derive(Default)]
struct ViewerState {
    bytes: Vec<u8>,
    /// Whether bytes were dropped.
    behind: bool,
    resized: bool,
    closed: bool,
}

impl ViewerQueue {
    pub(super) fn new(id: u64) -> Self {
        Self(Arc::new(ViewerShared { id, state: Mutex::default(), changed: Notify::new() }))
    }

    pub(super) fn id(&self) -> u64 {
        self.0.id
    }

    pub(super) fn push(&self, bytes: &[u8]) {
        let mut state = lock(&self.0.state);
        if state.behind {
            return;
        }
        if state.bytes.len() + bytes.len() > BUFFER_CAP {
            (state.bytes, state.behind) = (Vec::new(), true);
        } else {
            state.bytes.extend_from_slice(bytes);
        }
        self.0.changed.notify_one();
    }

    pub(super) fn resized(&self) {
        lock(&self.0.state).resized = true;
        self.0.changed.notify_one();
    }

    pub(super) fn close(&self) {
        lock(&self.0.state).closed = true;
        self.0.changed.notify_one();
    }
}

/// A viewer of a session's terminal. Dropping it detaches the viewer; the agent goes on.
pub struct TerminalViewer {
    terminal: Arc<SessionTerminal>,
    queue: ViewerQueue,
    access: ViewerAccess,
}

impl std::fmt::Debug for TerminalViewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TerminalViewer").field("access", &self.access).finish_non_exhaustive()
    }
}

impl TerminalViewer {
    pub(super) fn new(terminal: Arc<SessionTerminal>, queue: ViewerQueue, access: ViewerAccess) -> Self {
        Self { terminal, queue, access }
    }

    /// Returns the rights of this viewer.
    pub fn access(&self) -> ViewerAccess {
        self.access
    }

    /// Returns the size of the window.
    pub fn size(&self) -> WindowSize {
        self.terminal.size()
    }

    /// Returns the bytes that draw the present screen and switch on its modes.
    pub fn snapshot(&self) -> Vec<u8> {
        self.terminal.snapshot()
    }

    /// Returns the next update; `None` when the agent has ended. Cancel-safe.
    pub async fn next(&self) -> Option<TerminalUpdate> {
        loop {
            let changed = self.queue.0.changed.notified();
            let behind = {
                let mut state = lock(&self.queue.0.state);
                if !state.bytes.is_empty() {
                    return Some(TerminalUpdate::Output(std::mem::take(&mut state.bytes)));
                }
                if std::mem::take(&mut state.resized) {
                    drop(state);
                    return Some(TerminalUpdate::Resized(self.size()));
                }
                if state.closed && !state.behind {
                    return None;
                }
                std::mem::take(&mut state.behind)
            };
            if behind {
                return Some(TerminalUpdate::Output(self.snapshot()));
            }
            changed.await;
        }
    }

    /// Sends typed bytes to the agent; does nothing for a viewer that only watches.
    pub async fn write(&self, bytes: Vec<u8>) {
        if self.access == ViewerAccess::Type {
            self.terminal.write(self.queue.id(), bytes).await;
        }
    }

    /// Resizes the window; does nothing for a viewer that only watches.
    pub fn resize(&self, size: WindowSize) {
        if self.access == ViewerAccess::Type {
            self.terminal.set_size(size);
        }
    }
}

impl Drop for TerminalViewer {
    fn drop(&mut self) {
        self.terminal.detach(self.queue.id());
    }
}
