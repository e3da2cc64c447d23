//! Lines of the write-ahead log: one operation of one call as JSON, readable without the lines before it.

use std::borrow::Cow;
use std::sync::Arc;

use protocol::{CallId, SessionId, Usage};
use serde::ser::{SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};

use super::call::{all_tokens, bounded_tokens};
use super::limit::LimitScope;
use super::totals::{CallParties, TotalAmounts};
use super::{CallProgress, CallSource};
use crate::OwnerId;

/// One line of the write-ahead log.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LogLine {
    /// The time in milliseconds since 1970.
    pub(super) at: i64,
    pub(super) step: LogEntry,
}

/// The operation of a line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LogEntry {
    Hold(Box<HoldEntry>),
    /// Replaces the held amount of a call. `share` has the amount before.
    Adjust {
        call: CallId,
        share: Arc<CallShare>,
        picos: i64,
        #[serde(default, skip_serializing_if = "is_zero")]
        tokens: i64,
    },
    Advance {
        call: CallId,
        progress: CallProgress,
    },
    Settle {
        call: CallId,
        share: Arc<CallShare>,
        picos: i64,
        #[serde(serialize_with = "write_usage")]
        usage: Usage,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        estimated: bool,
    },
    Fail {
        call: CallId,
        share: Arc<CallShare>,
        reason: String,
    },
    /// The tables were changed without the log: totals that a process read from them earlier are out of date.
    Forget,
}

/// A granted hold. Default values, and values that follow from others, are left out of the JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HoldEntry {
    pub(super) call: CallId,
    pub(super) share: Arc<CallShare>,
    pub(super) system: Cow<'static, str>,
    /// The run, if it is not the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<Arc<str>>,
    #[serde(default = "first_attempt", skip_serializing_if = "is_first_attempt")]
    pub(super) attempt: u32,
    /// The source reference, in lines of earlier versions. Now it follows from run, attempt and call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) agent: Option<Arc<str>>,
    pub(super) model: String,
    pub(super) price_hash: Arc<str>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) sent: bool,
    /// Whether the hold uses a part of its session's lease.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) leased: bool,
    /// The scopes whose requests per minute are counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) minutes: Vec<LimitScope>,
    pub(super) owner: OwnerId,
    pub(super) boot: Arc<str>,
}

/// The held amount of a call, and the parties whose totals it counts in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CallShare {
    pub(super) session: SessionId,
    pub(super) account: Arc<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<Arc<str>>,
    /// The day of the hold.
    pub(super) day: i64,
    pub(super) picos: i64,
    /// Held tokens of a call without a known price; 0 for all other calls.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) tokens: i64,
}

impl CallShare {
    /// Returns the share with another held amount.
    pub(super) fn with_amount(&self, picos: i64, tokens: i64) -> Self {
        Self { picos, tokens, ..self.clone() }
    }

    /// Returns the tokens of `usage` that count against token limits: those of a call without a known price.
    pub(super) fn counted_tokens(&self, usage: Usage) -> i64 {
        if self.tokens > 0 { bounded_tokens(all_tokens(usage)) } else { 0 }
    }

    pub(super) fn parties(&self) -> CallParties<'_> {
        CallParties { session: self.session.as_str(), account: &self.account, key: self.key.as_deref() }
    }
}

impl HoldEntry {
    /// Returns the source reference, `run/attempt/call`.
    pub(super) fn reference(&self) -> Cow<'_, str> {
        if let Some(reference) = &self.reference {
            return reference.into();
        }
        let run = self.run.as_deref().unwrap_or_else(|| self.share.session.as_str());
        CallSource::reference(run, self.attempt, &self.call).into()
    }
}

impl LogEntry {
    /// Returns the change of totals, with the parties whose totals change; `None` if no total changes.
    pub(super) fn total_change(&self) -> Option<(&CallShare, TotalAmounts)> {
        match self {
            Self::Hold(hold) => {
                let (held, held_tokens) = (hold.share.picos, hold.share.tokens);
                Some((&hold.share, TotalAmounts { held, held_tokens, requests: 1, ..TotalAmounts::default() }))
            }
            Self::Adjust { share, picos, tokens, .. } => {
                let (held, held_tokens) = (picos - share.picos, tokens - share.tokens);
                Some((share, TotalAmounts { held, held_tokens, ..TotalAmounts::default() }))
            }
            Self::Settle { share, picos, usage, .. } => {
                let (held, held_tokens) = (-share.picos, -share.tokens);
                let spent_tokens = share.counted_tokens(*usage);
                Some((share, TotalAmounts { held, held_tokens, spent: *picos, spent_tokens, requests: 0 }))
            }
            Self::Fail { share, .. } => {
                let (held, held_tokens) = (-share.picos, -share.tokens);
                Some((share, TotalAmounts { held, held_tokens, ..TotalAmounts::default() }))
            }
            Self::Advance { .. } | Self::Forget => None,
        }
    }
}

impl LogLine {
    /// Appends the line with its newline to `lines`. On an error, `lines` is unchanged.
    pub(super) fn encode(&self, lines: &mut Vec<u8>) -> serde_json::Result<()> {
        let start = lines.len();
        lines.reserve(512);
        serde_json::to_writer(&mut *lines, self).inspect_err(|_| lines.truncate(start))?;
        lines.push(b'\n');
        Ok(())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(amount: &i64) -> bool {
    *amount == 0
}

fn first_attempt() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_first_attempt(attempt: &u32) -> bool {
    *attempt == first_attempt()
}

/// Writes the token counts that are not zero. A reader takes missing counts as zero.
fn write_usage<S: Serializer>(usage: &Usage, serializer: S) -> Result<S::Ok, S::Error> {
    let kinds = [
        ("input_tokens", usage.input_tokens),
        ("output_tokens", usage.output_tokens),
        ("cache_read_tokens", usage.cache_read_tokens),
        ("cache_write_tokens", usage.cache_write_tokens),
        ("cache_write_1h_tokens", usage.cache_write_1h_tokens),
    ];
    let non_zero = || kinds.iter().filter(|(_, tokens)| *tokens > 0);
    let mut written = serializer.serialize_struct("Usage", non_zero().count())?;
    for (kind, tokens) in non_zero() {
        written.serialize_field(kind, tokens)?;
    }
    written.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes and encodes `line`; returns the new text and the source reference of a hold.
    #[track_caller]
    fn encode_again(line: &str) -> (String, Option<String>) {
        let line: LogLine = serde_json::from_str(line).unwrap();
        let mut text = Vec::new();
        line.encode(&mut text).unwrap();
        let reference = match line.step {
            LogEntry::Hold(hold) => Some(hold.reference().into_owned()),
            _ => None,
        };
        (String::from_utf8(text).unwrap().trim_end().to_owned(), reference)
    }

    #[test]
    fn default_values_are_left_out() {
        let hold = |source: &str| {
            r#"{"at":5,"step":{"hold":{"call":"c1","share":{"session":"s1","account":"a1","day":3,"picos":7},"#
                .to_owned()
                + &format!(r#""system":"viv",{source}"model":"m1","price_hash":"p1","owner":"o1","boot":"b1"}}}}}}"#)
        };
        for (source, reference) in [
            ("", "s1/1/c1"),
            (r#""attempt":2,"#, "s1/2/c1"),
            (r#""run":"r1","#, "r1/1/c1"),
            (r#""run":"r1","attempt":2,"#, "r1/2/c1"),
        ] {
            assert_eq!(encode_again(&hold(source)), (hold(source), Some(reference.to_owned())));
        }
        let settle = r#"{"at":5,"step":{"settle":{"call":"c1","share":{"session":"s1","account":"a1","day":3,"picos":7},"picos":4,"usage":{"output_tokens":3}}}}"#;
        assert_eq!(encode_again(settle), (settle.to_owned(), None));
    }

    #[test]
    fn line_of_an_earlier_version_is_read() {
        let (hold, reference) = encode_again(
            r#"{"at":5,"step":{"hold":{"call":"c1","share":{"session":"s1","account":"a1","day":3,"picos":7},
            "system":"viv","reference":"r1/2/c1","user":null,"agent":"a","model":"m1","price_hash":"p1","sent":true,
            "leased":false,"minutes":["key"],"owner":"o1","boot":"b1"}}}"#,
        );
        assert_eq!(reference.as_deref(), Some("r1/2/c1"));
        insta::assert_snapshot!(hold, @r#"{"at":5,"step":{"hold":{"call":"c1","share":{"session":"s1","account":"a1","day":3,"picos":7},"system":"viv","reference":"r1/2/c1","agent":"a","model":"m1","price_hash":"p1","sent":true,"minutes":["key"],"owner":"o1","boot":"b1"}}}"#);
        let (settle, _) = encode_again(
            r#"{"at":5,"step":{"settle":{"call":"c1","share":{"session":"s1","account":"a1","day":3,"picos":7},
            "picos":4,"usage":{"input_tokens":1,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":2,
            "cache_write_1h_tokens":0}}}}"#,
        );
        insta::assert_snapshot!(settle, @r#"{"at":5,"step":{"settle":{"call":"c1","share":{"session":"s1","account":"a1","day":3,"picos":7},"picos":4,"usage":{"input_tokens":1,"cache_write_tokens":2}}}}"#);
    }
}
