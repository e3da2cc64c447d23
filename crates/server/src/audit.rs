//! Who changed what: a line for every call that may change something, in a file of the data directory.
//!
//! A line is one write, so that two never mix. A log that cannot be written is told in the server's own log and never
//! keeps a call from being answered: what was done is done.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use axum::extract::Request;
use http::{Method, StatusCode};
use jiff::Timestamp;
use serde::Serialize;

use crate::request_id::RequestId;

/// Where calls are noted.
#[derive(Debug)]
pub(crate) struct AuditLog {
    file: File,
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
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        Ok(Self { file })
    }

    /// Notes a call and how it was answered.
    pub(crate) fn note(&self, call: &Call, status: StatusCode) {
        if !call.changes {
            return;
        }
        let line = Line { time: Timestamp::now().to_string(), call, status: status.as_u16() };
        let written = serde_json::to_string(&line).map_err(io::Error::other);
        if let Err(error) = written.and_then(|line| (&self.file).write_all(format!("{line}\n").as_bytes())) {
            tracing::error!(%error, "cannot write the audit log");
        }
    }
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
