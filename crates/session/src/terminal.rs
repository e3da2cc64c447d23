//! The terminal of an interactive session: one pseudo-terminal in the sandbox, many viewers.
//!
//! Output passes a [`TerminalFilter`] once. Then the screen model, the recording and the viewers get it. The model gives a
//! new viewer the present screen without the output that led to it. Only one viewer, the last that may type, gets
//! the agent's queries, because each terminal that gets a query answers it.
//!
//! Not here: keys that `viv` itself handles, such as the detach key (`cli`).

mod modes;
mod recording;
mod screen;
mod viewer;

use std::sync::{Arc, Mutex};

use base::{TerminalFilter, lock};
use sandbox::{SandboxProcess, WindowSize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

pub use modes::RESTORE_TERMINAL;
pub(crate) use recording::Recording;
pub use recording::{Frame, RecordingError, RecordingReader};
pub use viewer::{TerminalUpdate, TerminalViewer, ViewerAccess};

use screen::ScreenModel;
use viewer::ViewerQueue;

/// The input that may wait for the agent, in chunks. A viewer that types faster waits.
const INPUT_CHUNKS: usize = 64;
/// The largest window, in rows or columns. The screen model needs memory for each cell.
const LARGEST: u16 = 1000;

/// The terminal of one interactive session.
pub(crate) struct SessionTerminal {
    state: Mutex<TerminalState>,
    input: mpsc::Sender<Vec<u8>>,
    resize: Box<dyn Fn(WindowSize) + Send + Sync>,
}

struct TerminalState {
    filter: TerminalFilter,
    screen: ScreenModel,
    recording: Option<Recording>,
    viewers: Vec<ViewerQueue>,
    next_viewer: u64,
    /// The viewer whose terminal answers queries.
    answering: Option<u64>,
    size: WindowSize,
    ended: bool,
}

/// The two halves of the host's end of a terminal.
pub(crate) struct TerminalStreams {
    input: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    chunks: mpsc::Receiver<Vec<u8>>,
    output: Box<dyn AsyncRead + Send + Unpin>,
}

impl SessionTerminal {
    /// Takes the streams of `process`. The process keeps an empty output that ends together with [`Self::pump`].
    pub(crate) fn take(
        process: &mut SandboxProcess,
        size: WindowSize,
        clipboard: bool,
        recording: Option<Recording>,
    ) -> (Arc<Self>, TerminalStreams, tokio::io::DuplexStream) {
        let (input, chunks) = mpsc::channel(INPUT_CHUNKS);
        let (alive, end) = tokio::io::duplex(1);
        let output = std::mem::replace(&mut process.stdout, Box::new(end));
        let streams = TerminalStreams { input: process.stdin.take(), chunks, output };
        let resize = std::mem::replace(&mut process.resize, Box::new(|_| {}));
        let state = Mutex::new(TerminalState {
            filter: TerminalFilter::new(clipboard),
            screen: ScreenModel::new(size),
            recording,
            viewers: Vec::new(),
            next_viewer: 0,
            answering: None,
            size,
            ended: false,
        });
        (Arc::new(Self { state, input, resize }), streams, alive)
    }

    /// Carries bytes between the pseudo-terminal and the viewers until the program ends.
    pub(crate) async fn pump(self: Arc<Self>, streams: TerminalStreams, alive: tokio::io::DuplexStream) {
        let TerminalStreams { input, mut chunks, mut output } = streams;
        let write = async {
            let Some(mut input) = input else { return };
            while let Some(chunk) = chunks.recv().await {
                if input.write_all(&chunk).await.is_err() || input.flush().await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        let read = async {
            let mut buffer = vec![0; 16 * 1024];
            while let Ok(read @ 1..) = output.read(&mut buffer).await {
                self.publish(&buffer[..read]);
            }
        };
        tokio::select! { () = write => {}, () = read => {} }
        self.end();
        drop(alive);
    }

    fn publish(&self, bytes: &[u8]) {
        let mut state = lock(&self.state);
        let shown = state.filter.pass(bytes);
        state.screen.feed(&shown.drawing);
        if let Some(recording) = &mut state.recording {
            recording.output(&shown.drawing);
        }
        let answering = state.answering;
        for viewer in &state.viewers {
            let asked = Some(viewer.id()) == answering;
            viewer.push(if asked { &shown.with_queries } else { &shown.drawing });
        }
    }

    fn end(&self) {
        let mut state = lock(&self.state);
        state.ended = true;
        state.recording = None;
        state.viewers.iter().for_each(ViewerQueue::close);
        state.viewers.clear();
    }

    /// Adds a viewer, whose first update is the present screen. A viewer that may type answers queries from now on.
    pub(crate) fn attach(self: &Arc<Self>, access: ViewerAccess) -> TerminalViewer {
        let mut state = lock(&self.state);
        state.next_viewer += 1;
        let id = state.next_viewer;
        let queue = ViewerQueue::new(id);
        queue.push(&state.screen.snapshot());
        if state.ended {
            queue.close();
        } else {
            state.viewers.push(queue.clone());
        }
        if access == ViewerAccess::Type {
            state.answering = Some(id);
        }
        TerminalViewer::new(self.clone(), queue, access)
    }

    fn detach(&self, id: u64) {
        let mut state = lock(&self.state);
        state.viewers.retain(|viewer| viewer.id() != id);
        if state.answering == Some(id) {
            state.answering = None;
        }
    }

    fn snapshot(&self) -> Vec<u8> {
        lock(&self.state).screen.snapshot()
    }

    fn size(&self) -> WindowSize {
        lock(&self.state).size
    }

    /// Sends input of a viewer to the agent.
    async fn write(&self, id: u64, bytes: Vec<u8>) {
        lock(&self.state).answering = Some(id);
        // The program may have ended; its end is noticed elsewhere.
        let _ = self.input.send(bytes).await;
    }

    fn set_size(&self, size: WindowSize) {
        let size = WindowSize { rows: size.rows.clamp(1, LARGEST), columns: size.columns.clamp(1, LARGEST) };
        let mut state = lock(&self.state);
        if state.size == size {
            return;
        }
        state.size = size;
        state.screen.resize(size);
        if let Some(recording) = &mut state.recording {
            recording.resize(size);
        }
        for viewer in &state.viewers {
            viewer.resized();
        }
        drop(state);
        (self.resize)(size);
    }
}
