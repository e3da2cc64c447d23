//! Text frames of a client on the WebSocket of a terminal.

use serde::Deserialize;

/// A command of a client.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum TerminalCommand {
    /// Resizes the window.
    Resize {
        /// The number of lines.
        rows: u16,
        /// The number of characters in a line.
        columns: u16,
    },
    /// Asks for the bytes that draw the present screen.
    Redraw,
}
