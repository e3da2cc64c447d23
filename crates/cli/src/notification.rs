//! The terminal's notification that an agent waits for an answer.
//!
//! The text is fixed: nothing that an agent says reaches the terminal this way.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::output;

/// How a terminal is told that an agent waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NotificationMode {
    /// A desktop notification of the terminal (OSC 9), and the bell for terminals without.
    #[default]
    Message,
    /// The bell.
    Bell,
    /// No notification.
    None,
}

/// The mode of this process; set once, from the configuration.
static MODE: OnceLock<NotificationMode> = OnceLock::new();

/// Sets the mode of this process.
pub(crate) fn configure(mode: NotificationMode) {
    // A process has one configuration.
    let _ = MODE.set(mode);
}

/// Tells the terminal of stderr, if there is one, that an agent waits.
pub(crate) fn agent_waits() {
    output::notify(sequence(MODE.get().copied().unwrap_or_default()));
}

/// Returns the bytes for a terminal. In `Message`, the last byte is the bell: terminals without OSC 9 ring, all others use
/// the first bell as the end of the message.
fn sequence(mode: NotificationMode) -> &'static [u8] {
    match mode {
        NotificationMode::Message => b"\x1b]9;viv: an agent waits for your answer\x07\x07",
        NotificationMode::Bell => b"\x07",
        NotificationMode::None => b"",
    }
}
