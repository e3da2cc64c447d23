//! The example lines in `docs/mock-agent.md` are valid and complete.

use std::collections::BTreeSet;

use agents::{AgentLine, HostLine};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

const DOCUMENT: &str = include_str!("../../../../docs/mock-agent.md");

/// Returns the lines of the fenced blocks with the info string `mark`.
fn examples(mark: &str) -> Vec<&'static str> {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in DOCUMENT.lines() {
        if line.starts_with("```") {
            inside = line == format!("```{mark}");
        } else if inside {
            lines.push(line);
        }
    }
    lines
}

#[track_caller]
fn check<L: DeserializeOwned + Serialize>(mark: &str, kinds: &[&str]) {
    let mut seen = BTreeSet::new();
    for example in examples(mark) {
        let line: L = serde_json::from_str(example).unwrap_or_else(|error| panic!("{example}: {error}"));
        let written = serde_json::to_value(&line).unwrap();
        assert_eq!(written, serde_json::from_str::<Value>(example).unwrap(), "not as it is written");
        seen.insert(written["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(seen, kinds.iter().map(|kind| (*kind).to_owned()).collect());
}

#[test]
fn document_has_every_line_of_the_agent() {
    check::<AgentLine>(
        "json agent",
        &[
            "ready",
            "item_started",
            "item_delta",
            "item_completed",
            "permission_requested",
            "permission_withdrawn",
            "question_requested",
            "question_withdrawn",
            "error",
            "turn_ended",
        ],
    );
}

#[test]
fn document_has_every_line_of_the_host() {
    check::<HostLine>("json host", &["prompt", "permission_reply", "question_reply", "interrupt"]);
}
