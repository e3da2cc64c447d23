//! Who changed what: a line for every call that may change something, in a file of the data directory.
//!
//! A line is one write, so that two never mix, and it begins anew behind one that was cut: by a full disk, or by the end of
//! the server before. A log that cannot be written is told in the server's own log and never
//! keeps a call from being answered: what was done is done.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::Request;
use http::{Method, StatusCode};
use jiff::Timestamp;
use serde::Serialize;

use crate::request_id::RequestId;

/// Where calls are noted.
#[derive(Debug)]
pub(crate) struct AuditLog {
    file: File,
    /// The last line was not written to its end.
    torn: AtomicBool,
}

/// A call that was let in.
#[derive(Debug, Serialize)]
pub(crate) struct Call {
    who: String,
    method: String,
    path: String,
    request_id: Option<String>,
    #[serde(skip)]
    changes: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    #[serde(flatten)]
    call: &'a Call,
    status: u16,
}

impl AuditLog {
    /// Opens the log at `path`, readable by its owner only.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let torn = AtomicBool::new(ends_torn(&file)?);
        Ok(Self { file, torn })
    }

    /// Notes a call and how it was answered.
    pub(crate) fn note(&self, call: &Call, status: StatusCode) {
        if !call.changes {
            return;
        }
        let line = Line { time: Timestamp::now().to_string(), call, status: status.as_u16() };
        let written = serde_json::to_string(&line).map_err(io::Error::other);
        if let Err(error) = written.and_then(|line| self.write(&line)) {
            tracing::error!(%error, "cannot write the audit log");
        }
    }

    fn write(&self, line: &str) -> io::Result<()> {
        let start = if self.torn.swap(false, Ordering::AcqRel) { "\n" } else { "" };
        let written = (&self.file).write_all(format!("{start}{line}\n").as_bytes());
        if written.is_err() {
            self.torn.store(true, Ordering::Release);
        }
        written
    }
}

/// Whether there is something, and its last line has no end.
fn ends_torn(file: &File) -> io::Result<bool> {
    let Some(last) = file.metadata()?.len().checked_sub(1) else { return Ok(false) };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte != *b"\n")
}

impl Call {
    /// What is called, by whom.
    pub(crate) fn of(request: &Request, who: String) -> Self {
        Self {
            who,
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            request_id: request.extensions().get::<RequestId>().map(|id| id.0.clone()),
            changes: !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn behind_a_line_that_was_cut_a_new_one_begins() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        std::fs::write(&path, r#"{"time":"2026-01-0"#).unwrap();
        let log = AuditLog::open(&path).unwrap();
        let call = Call::of(&Request::post("/v1/sessions/s1").body(Body::empty()).unwrap(), "anybody".to_owned());
        log.note(&call, StatusCode::OK);
        log.note(&call, StatusCode::CONFLICT);
        let text = std::fs::read_to_string(&path).unwrap();
        let statuses = text.lines().skip(1).map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        assert_eq!(statuses.map(|line| line["status"].as_u64().unwrap()).collect::<Vec<_>>(), [200, 409], "{text}");
    }
}
