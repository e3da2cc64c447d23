//! One step of one call, as it stands in the daybook: a line of JSON that can be read without the lines before it.

use std::borrow::Cow;
use std::sync::Arc;

use protocol::{CallId, SessionId, Usage};
use serde::ser::{SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};

use super::limit::LimitScope;
use super::totals::{Difference, Parties};
use super::{CallProgress, CallSource};
use crate::{OwnerId, json};

/// A line of the daybook.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line {
    /// When, in milliseconds.
    pub(super) at: i64,
    pub(super) step: Entry,
}

/// What was done.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Entry {
    Hold(Box<HoldEntry>),
    Advance {
        call: CallId,
        progress: CallProgress,
    },
    Settle {
        call: CallId,
        share: Arc<Share>,
        picos: i64,
        #[serde(serialize_with = "write_usage")]
        usage: Usage,
    },
    Fail {
        call: CallId,
        share: Arc<Share>,
        reason: String,
    },
    /// The tables were changed without the daybook: sums that were read from them before are worth nothing.
    Forget,
}

/// A hold that was granted. What most holds have in common is left out, and what follows from the rest.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HoldEntry {
    pub(super) call: CallId,
    pub(super) share: Arc<Share>,
    pub(super) system: Cow<'static, str>,
    /// The run, where that is not the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<Arc<str>>,
    #[serde(default = "first_attempt", skip_serializing_if = "is_first_attempt")]
    pub(super) attempt: u32,
    /// Where it comes from, in a line of a version that did not leave it to the run and the attempt.
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
    /// It uses a part of its session's lease.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) leased: bool,
    /// Whose requests are counted by the minute.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) minutes: Vec<LimitScope>,
    pub(super) owner: OwnerId,
    pub(super) boot: Arc<str>,
}

/// What is set aside for a call, and whose sums it counts in.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Share {
    pub(super) session: SessionId,
    pub(super) account: Arc<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<Arc<str>>,
    /// The day it was held on.
    pub(super) day: i64,
    pub(super) picos: i64,
}

impl Share {
    /// Whether both count in the same sums.
    pub(super) fn counts_with(&self, other: &Self) -> bool {
        (self.day, &self.session, &self.account, &self.key) == (other.day, &other.session, &other.account, &other.key)
    }

    pub(super) fn parties(&self) -> Parties<'_> {
        Parties { session: self.session.as_str(), account: &self.account, key: self.key.as_deref() }
    }
}

impl HoldEntry {
    /// Where it comes from, as one text.
    pub(super) fn reference(&self) -> Cow<'_, str> {
        if let Some(reference) = &self.reference {
            return reference.into();
        }
        let run = self.run.as_deref().unwrap_or_else(|| self.share.session.as_str());
        CallSource::reference(run, self.attempt, &self.call).into()
    }
}

impl Entry {
    /// Whose sums it changes, and by how much.
    pub(super) fn change(&self) -> Option<(&Share, Difference)> {
        match self {
            Self::Hold(hold) => Some((&hold.share, Difference { held: hold.share.picos, spent: 0, requests: 1 })),
            Self::Settle { share, picos, .. } => {
                Some((share, Difference { held: -share.picos, spent: *picos, requests: 0 }))
            }
            Self::Fail { share, .. } => Some((share, Difference { held: -share.picos, ..Difference::default() })),
            Self::Advance { .. } | Self::Forget => None,
        }
    }
}

impl Line {
    /// Adds it to `lines` as it is written, newline included; or nothing.
    pub(super) fn encode(&self, lines: &mut Vec<u8>) -> serde_json::Result<()> {
        let start = lines.len();
        lines.reserve(512);
        json::write(self, lines).inspect_err(|_| lines.truncate(start))?;
        lines.push(b'\n');
        Ok(())
    }
}

fn first_attempt() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_first_attempt(attempt: &u32) -> bool {
    *attempt == first_attempt()
}

/// Tokens of the kinds that there are any of: who reads takes the others for none.
fn write_usage<S: Serializer>(usage: &Usage, serializer: S) -> Result<S::Ok, S::Error> {
    let kinds = [
        ("input_tokens", usage.input_tokens),
        ("output_tokens", usage.output_tokens),
        ("cache_read_tokens", usage.cache_read_tokens),
        ("cache_write_tokens", usage.cache_write_tokens),
        ("cache_write_1h_tokens", usage.cache_write_1h_tokens),
    ];
    let some = || kinds.iter().filter(|(_, tokens)| *tokens > 0);
    let mut written = serializer.serialize_struct("Usage", some().count())?;
    for (kind, tokens) in some() {
        written.serialize_field(kind, tokens)?;
    }
    written.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line, as it is written, and where the hold in it comes from.
    #[track_caller]
    fn again(line: &str) -> (String, Option<String>) {
        let line: Line = serde_json::from_str(line).unwrap();
        let mut text = Vec::new();
        line.encode(&mut text).unwrap();
        let reference = match line.step {
            Entry::Hold(hold) => Some(hold.reference().into_owned()),
            _ => None,
        };
        (String::from_utf8(text).unwrap().trim_end().to_owned(), reference)
    }

    #[test]
    fn what_goes_without_saying_is_not_written_and_need_not_be() {
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
            assert_eq!(again(&hold(source)), (hold(source), Some(reference.to_owned())));
        }
        let settle = r#"{"at":5,"step":{"settle":{"call":"c1","share":{"session":"s1","account":"a1","day":3,"picos":7},"picos":4,"usage":{"output_tokens":3}}}}"#;
        assert_eq!(again(settle), (settle.to_owned(), None));
    }

    #[test]
    fn a_line_of_an_earlier_version_is_read() {
        let (hold, reference) = again(
            r#"{"at":5,"step":{"hold":{"call":"c1","share":{"session":"s1","account":"a1","day":3,"picos":7},
            "system":"viv","reference":"r1/2/c1","user":null,"agent":"a","model":"m1","price_hash":"p1","sent":true,
            "leased":false,"minutes":["key"],"owner":"o1","boot":"b1"}}}"#,
        );
        assert_eq!(reference.as_deref(), Some("r1/2/c1"));
        insta::assert_snapshot!(hold, @r#"{"at":5,"step":{"hold":{"call":"c1","share":{"session":"s1","account":"a1","day":3,"picos":7},"system":"viv","reference":"r1/2/c1","agent":"a","model":"m1","price_hash":"p1","sent":true,"minutes":["key"],"owner":"o1","boot":"b1"}}}"#);
        let (settle, _) = again(
            r#"{"at":5,"step":{"settle":{"call":"c1","share":{"session":"s1","account":"a1","day":3,"picos":7},
            "picos":4,"usage":{"input_tokens":1,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":2,
            "cache_write_1h_tokens":0}}}}"#,
        );
        insta::assert_snapshot!(settle, @r#"{"at":5,"step":{"settle":{"call":"c1","share":{"session":"s1","account":"a1","day":3,"picos":7},"picos":4,"usage":{"input_tokens":1,"cache_write_tokens":2}}}}"#);
    }
}
