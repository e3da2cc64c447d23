//! The audit log: one line in a file of the data directory for every call that may change something.
//!
//! Each line is one write, so lines never mix. After a line that was cut, by a full disk or a crash, the next line starts
//! with a line feed. A server that cannot open its audit log does not start. A later write error is logged, and the call
//! is still answered, because it has already happened.

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

/// The audit log file.
#[derive(Debug)]
pub(crate) struct AuditLog {
    file: File,
    /// Whether the last line is incomplete.
    torn: AtomicBool,
}

/// An authorized call.
#[derive(Debug, Serialize)]
pub(crate) struct AuditedCall {
    who: String,
    method: String,
    path: String,
    request_id: Option<String>,
    #[serde(skip)]
    changes: bool,
}

#[derive(Serialize)]
struct AuditLine<'a> {
    time: String,
    #[serde(flatten)]
    call: &'a AuditedCall,
    status: AuditStatus,
}

/// The end of a call.
#[derive(Clone, Copy, Serialize)]
#[serde(untagged)]
enum AuditStatus {
    Answered(u16),
    BrokenOff(&'static str),
}

/// A running call. Dropping the guard writes its line.
pub(crate) struct AuditGuard {
    log: Option<Arc<AuditLog>>,
    call: AuditedCall,
    status: AuditStatus,
}

impl AuditGuard {
    pub(crate) fn new(log: Option<Arc<AuditLog>>, call: AuditedCall) -> Self {
        Self { log, call, status: AuditStatus::BrokenOff("broken_off") }
    }

    /// Sets the status of the response, and writes the line.
    pub(crate) fn finish(mut self, status: StatusCode) {
        self.status = AuditStatus::Answered(status.as_u16());
    }
}

impl Drop for AuditGuard {
    fn drop(&mut self) {
        if let Some(log) = &self.log {
            log.append(&self.call, self.status);
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

    /// Writes the line of a call.
    fn append(&self, call: &AuditedCall, status: AuditStatus) {
        let line = AuditLine { time: Timestamp::now().to_string(), call, status };
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

/// Returns whether the file's last line has no line feed.
fn ends_torn(file: &File) -> io::Result<bool> {
    let Some(last) = file.metadata()?.len().checked_sub(1) else { return Ok(false) };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte != *b"\n")
}

impl AuditedCall {
    /// Returns whether the call may change something.
    pub(crate) fn may_change(&self) -> bool {
        self.changes
    }

    /// Returns the audited call of a request by the caller `who`.
    pub(crate) fn from_request(request: &Request, who: String) -> Self {
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
    fn line_after_an_incomplete_one_starts_on_a_new_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        std::fs::write(&path, r#"{"time":"2026-01-0"#).unwrap();
        let log = Arc::new(AuditLog::open(&path).unwrap());
        let call = || {
            AuditedCall::from_request(
                &Request::post("/v1/sessions/s1").body(Body::empty()).unwrap(),
                "anybody".to_owned(),
            )
        };
        AuditGuard::new(Some(log.clone()), call()).finish(StatusCode::OK);
        AuditGuard::new(Some(log.clone()), call()).finish(StatusCode::CONFLICT);
        drop(AuditGuard::new(Some(log), call()));
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().skip(1).map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let statuses: Vec<_> = lines.map(|line| line["status"].clone()).collect();
        assert_eq!(statuses, [200.into(), 409.into(), serde_json::Value::from("broken_off")], "{text}");
    }
}
