//! Who changed what: a line for every call that may change something, in a file of the data directory.
//!
//! A line is one write, so that two never mix, and it begins anew behind one that was cut: by a full disk, or by the end of
//! the server before. A server whose log cannot be opened does not start; one that cannot be written later is told in the server's
//! own log and never keeps a call from being answered: what was done is done.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
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
    status: Status,
}

/// How a call was answered.
#[derive(Clone, Copy, Serialize)]
#[serde(untagged)]
enum Status {
    Answered(u16),
    BrokenOff(&'static str),
}

/// A call that is being done; noted when it is answered, or else when it is dropped.
pub(crate) struct Noted {
    log: Option<Arc<AuditLog>>,
    call: Call,
    status: Status,
}

impl Noted {
    pub(crate) fn new(log: Option<Arc<AuditLog>>, call: Call) -> Self {
        Self { log, call, status: Status::BrokenOff("broken_off") }
    }

    /// It was answered like this.
    pub(crate) fn answered(mut self, status: StatusCode) {
        self.status = Status::Answered(status.as_u16());
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(log) = &self.log {
            log.note(&self.call, self.status);
        }
    }
}

impl AuditLog {
    /// Opens the log at `path`, readable by its owner only.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let torn = AtomicBool::new(ends_torn(&file)?);
        Ok(Self { file, torn })
    }

    /// Notes a call and how it was answered.
    fn note(&self, call: &Call, status: Status) {
        let line = Line { time: Timestamp::now().to_string(), call, status };
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
    /// Whether it may change something.
    pub(crate) fn changes(&self) -> bool {
        self.changes
    }

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
        let log = Arc::new(AuditLog::open(&path).unwrap());
        let call = || Call::of(&Request::post("/v1/sessions/s1").body(Body::empty()).unwrap(), "anybody".to_owned());
        Noted::new(Some(log.clone()), call()).answered(StatusCode::OK);
        Noted::new(Some(log.clone()), call()).answered(StatusCode::CONFLICT);
        drop(Noted::new(Some(log), call()));
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().skip(1).map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let statuses: Vec<_> = lines.map(|line| line["status"].clone()).collect();
        assert_eq!(statuses, [200.into(), 409.into(), serde_json::Value::from("broken_off")], "{text}");
    }
}
