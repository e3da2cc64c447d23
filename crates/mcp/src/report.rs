//! The result of `run`: structured for programs, and as text for a model.

use std::sync::Arc;
use std::time::Duration;

use policy::{EffectivePolicy, size_to_text};
use protocol::{EgressConnection, SessionId};
use rmcp::model::{CallToolResult, ContentBlock};
use sandbox::ExecResult;
use serde::Serialize;
use serde_json::{Value, json};

use crate::arguments::Encoding;

/// One output stream of a command.
#[derive(Debug, Default)]
pub(crate) struct StreamReport {
    /// The bytes that the command wrote.
    pub(crate) bytes: u64,
    text: String,
    is_truncated: bool,
}

impl StreamReport {
    /// Keeps the first `limit` bytes, which are `kept`, as text.
    pub(crate) fn keep(&mut self, kept: &[u8], limit: usize) {
        // A character that the limit cuts is dropped, not shown as an error.
        let whole = if self.bytes > limit as u64 { cut_incomplete(kept) } else { kept };
        self.text = String::from_utf8_lossy(whole).into_owned();
        self.is_truncated = self.bytes > kept.len() as u64;
    }
}

fn cut_incomplete(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}

/// A file that a call returns, or why it does not.
#[derive(Debug)]
pub(crate) struct Artifact {
    pub(crate) path: String,
    pub(crate) content: Result<ArtifactContent, String>,
}

/// The content of an artifact.
#[derive(Debug, Serialize)]
pub(crate) struct ArtifactContent {
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
    pub(crate) encoding: Encoding,
    pub(crate) content: String,
}

/// The outcome of a command.
#[derive(Debug)]
pub(crate) struct RunReport {
    pub(crate) session: SessionId,
    pub(crate) policy: Arc<EffectivePolicy>,
    pub(crate) timeout: Duration,
    pub(crate) result: ExecResult,
    pub(crate) stdout: StreamReport,
    pub(crate) stderr: StreamReport,
    pub(crate) artifacts: Vec<Artifact>,
    pub(crate) denials: Vec<EgressConnection>,
}

impl RunReport {
    /// Returns the result of the call. A command that fails by itself is not an error of the tool.
    pub(crate) fn into_result(self) -> CallToolResult {
        let status = self.status();
        let mut result = CallToolResult::success(vec![ContentBlock::text(self.text())]);
        result.structured_content = Some(self.document(status));
        result.is_error = Some(!matches!(status, "ok" | "failed"));
        result
    }

    fn status(&self) -> &'static str {
        let exit = &self.result.exit;
        match exit.code {
            _ if self.result.timed_out => "timeout",
            _ if exit.out_of_memory => "out_of_memory",
            Some(0) => "ok",
            _ if !self.denials.is_empty() => "denied",
            _ => "failed",
        }
    }

    fn document(&self, status: &str) -> Value {
        let exit = &self.result.exit;
        let denial = |denied: &EgressConnection| json!({"host": denied.host, "port": denied.port, "rule": denied.rule});
        let artifact = |artifact: &Artifact| {
            let mut entry = match &artifact.content {
                Ok(content) => json!(content),
                Err(error) => json!({"error": error}),
            };
            entry["path"] = artifact.path.clone().into();
            entry
        };
        json!({
            "session": self.session,
            "status": status,
            "exitCode": exit.code,
            "signal": exit.signal,
            "stdout": self.stdout.text,
            "stderr": self.stderr.text,
            "stdoutTruncated": self.stdout.is_truncated,
            "stderrTruncated": self.stderr.is_truncated,
            "stdoutBytes": self.stdout.bytes,
            "stderrBytes": self.stderr.bytes,
            "usage": {
                "wallMicros": u64::try_from(self.result.wall.as_micros()).unwrap_or(u64::MAX),
                "cpuMicros": exit.cpu_micros,
                "peakRssBytes": exit.peak_rss_bytes,
            },
            "artifacts": self.artifacts.iter().map(artifact).collect::<Vec<_>>(),
            "denials": self.denials.iter().map(denial).collect::<Vec<_>>(),
            "policyDigest": self.policy.digest(),
        })
    }

    /// Returns the outcome for a model: how the command ended, its output, and the rules that refused something.
    fn text(&self) -> String {
        let mut text = format!("{}\n", self.ending());
        for (name, stream) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if stream.bytes > 0 {
                text += &format!("--- {name}\n{}", stream.text);
                if !stream.text.ends_with('\n') {
                    text.push('\n');
                }
            }
            if stream.is_truncated {
                text += &format!(
                    "[{name} was truncated: the command wrote {} bytes. Redirect the output to a file and read it with \
                     `read_file`.]\n",
                    stream.bytes
                );
            }
        }
        for denied in &self.denials {
            text += &format!(
                "denied: connection to {:?} port {} by {}. Only the user can allow more.\n",
                denied.host, denied.port, denied.rule
            );
        }
        for artifact in &self.artifacts {
            text += &match &artifact.content {
                Ok(content) => format!("artifact {:?}: {} bytes\n", artifact.path, content.bytes),
                Err(error) => format!("artifact {:?}: {error}\n", artifact.path),
            };
        }
        text
    }

    fn ending(&self) -> String {
        let (exit, limits) = (&self.result.exit, self.policy.limits());
        if self.result.timed_out {
            let (seconds, rule) = (self.timeout.as_secs_f64(), limits.timeout.as_secs_f64());
            return format!(
                "timeout: the command ran longer than {seconds} s, and all its processes were killed. The policy allows \
                 {rule} s (proc.timeout)."
            );
        }
        if exit.out_of_memory {
            let memory = size_to_text(limits.memory_bytes);
            return format!("out of memory: the command was killed, because it used more than {memory} (proc.memory).");
        }
        match (exit.code, exit.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "ended without an exit code".to_owned(),
        }
    }
}
