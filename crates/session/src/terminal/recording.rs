//! The recording of a screen, in the format asciicast v2: one header line, then one line for each output.
//!
//! A recording is bounded. When it is full, or the disk is, recording stops and the session goes on.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sandbox::WindowSize;
use serde_json::{Value, json};
use store::StorageMeter;
use tokio::time::Instant;

/// The longest line of a recording that is read.
const LONGEST_LINE: usize = 8 << 20;

/// Writes the recording of one session.
pub(crate) struct Recording {
    file: File,
    start: Instant,
    storage: Option<Arc<StorageMeter>>,
    /// The start of a character that was split between two reads.
    partial: Vec<u8>,
    stopped: bool,
}

impl Recording {
    /// Creates the file, or continues the file of an earlier start of the session.
    pub(crate) fn create(
        path: &Path,
        size: WindowSize,
        unix_secs: u64,
        storage: Option<Arc<StorageMeter>>,
    ) -> std::io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = OpenOptions::new().create_new(true).append(true).mode(0o600).open(path)?;
        let mut recording = Self { file, start: Instant::now(), storage, partial: Vec::new(), stopped: false };
        recording.line(&json!({
            "version": 2, "width": size.columns, "height": size.rows, "timestamp": unix_secs,
            "env": { "TERM": "xterm-256color" },
        }));
        Ok(recording)
    }

    pub(crate) fn output(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        let text = super::screen::take_text(&mut self.partial);
        if !text.is_empty() {
            self.event("o", &text);
        }
    }

    pub(crate) fn resize(&mut self, size: WindowSize) {
        self.event("r", &format!("{}x{}", size.columns, size.rows));
    }

    fn event(&mut self, kind: &str, data: &str) {
        let seconds = self.start.elapsed().as_secs_f64();
        self.line(&json!([(seconds * 1e6).round() / 1e6, kind, data]));
    }

    fn line(&mut self, value: &Value) {
        if self.stopped {
            return;
        }
        let line = format!("{value}\n");
        let fits = self.storage.as_ref().is_none_or(|storage| storage.admit_recording(line.len() as u64));
        if !fits || self.file.write_all(line.as_bytes()).is_err() {
            tracing::warn!("the recording of the screen stops: no space is left for it");
            self.stopped = true;
        }
    }
}

/// One step of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// The time since the start.
    pub at: Duration,
    /// The text to draw; `None` for a change of size.
    pub text: Option<String>,
}

/// Reads a recording.
#[derive(Debug)]
pub struct RecordingReader {
    lines: Lines<BufReader<File>>,
    /// The size of the window at the start.
    pub size: WindowSize,
}

/// The reason why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be read.
    #[error("cannot read the recording")]
    Read(#[from] std::io::Error),
    /// A line is not valid.
    #[error("the recording is not in the format asciicast v2: {0}")]
    Format(String),
}

impl RecordingReader {
    /// Opens the recording at `path`.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let mut lines = BufReader::new(File::open(path)?).lines();
        let header = lines.next().transpose()?.unwrap_or_default();
        let header: Value = serde_json::from_str(&header).map_err(|error| RecordingError::Format(error.to_string()))?;
        if header["version"] != 2 {
            return Err(RecordingError::Format("the version is not 2".to_owned()));
        }
        let side = |name: &str| header[name].as_u64().and_then(|side| u16::try_from(side).ok()).unwrap_or(1).max(1);
        Ok(Self { size: WindowSize { rows: side("height"), columns: side("width") }, lines })
    }

    /// Returns the next frame; `None` at the end. A torn last line is the end.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, RecordingError> {
        let Some(line) = self.lines.next().transpose()? else { return Ok(None) };
        if line.len() > LONGEST_LINE {
            return Err(RecordingError::Format("a line is too long".to_owned()));
        }
        let Ok((seconds, kind, data)) = serde_json::from_str::<(f64, String, String)>(&line) else { return Ok(None) };
        let at = Duration::try_from_secs_f64(seconds).map_err(|error| RecordingError::Format(error.to_string()))?;
        Ok(Some(Frame { at, text: (kind == "o").then_some(data) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn recording_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("terminal/s.cast");
        let mut recording = Recording::create(&path, WindowSize { rows: 24, columns: 80 }, 1, None).unwrap();
        recording.output("a\x1b[31m漢".as_bytes());
        recording.resize(WindowSize { rows: 10, columns: 20 });
        recording.output(b"b");
        drop(recording);
        let mut reader = RecordingReader::open(&path).unwrap();
        assert_eq!(reader.size, WindowSize { rows: 24, columns: 80 });
        let mut texts = Vec::new();
        while let Some(frame) = reader.next_frame().unwrap() {
            texts.push(frame.text);
        }
        assert_eq!(texts, [Some("a\x1b[31m漢".to_owned()), None, Some("b".to_owned())]);
    }
}
