//! Malicious policy texts: parsing ends in time, with a message that is safe to show.
#![allow(clippy::unwrap_used)] // Helpers of tests are not seen as tests.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use miette::{GraphicalReportHandler, GraphicalTheme};
use policy::{
    Action, BaseLayer, CeilingLayer, EffectivePolicy, Host, NarrowingLayer, PolicySource, Preset, effective, narrow,
};
use proptest::prelude::*;

/// Parses `text` as every kind of layer and renders all findings. Rendering fails if a finding points outside the text.
fn read(text: &str) {
    let source = PolicySource::new("hostile.yaml", text);
    let outcomes = [BaseLayer::read(&source).err(), NarrowingLayer::read(&source).err(), narrow(text).err()];
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor());
    for finding in outcomes.iter().flatten().flat_map(policy::PolicyError::findings) {
        let mut shown = String::new();
        handler.render_report(&mut shown, finding).unwrap();
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
    }
}

/// Returns a valid policy with a few bytes changed, which gets further into the parser than random text.
fn damaged() -> impl Strategy<Value = String> {
    let good = Preset::Open.source().text().to_owned();
    let edit = (
        0..good.len(),
        prop_oneof!["[\\PC\\x00-\\x1f]{0,4}", "[&*!<>|%@`{}\\[\\],:#'\"\\\\-]{1,3}", "\u{202e}|é|\t|\r"],
    );
    proptest::collection::vec(edit, 1..6).prop_map(move |edits| {
        let mut text = good.clone();
        for (position, with) in edits {
            let boundary = (0..=position).rev().find(|position| text.is_char_boundary(*position));
            text.insert_str(boundary.unwrap_or(0), &with);
        }
        text
    })
}

static OPEN: LazyLock<EffectivePolicy> =
    LazyLock::new(|| effective(&CeilingLayer::built_in().unwrap(), &BaseLayer::preset(Preset::Open).unwrap(), &[]));

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn random_text_is_rejected(text in "[\\PC\n\t :\\-\\[\\]{}&*!\"']{0,200}") {
        read(&text);
    }

    #[test]
    fn damaged_policies_are_rejected(text in damaged()) {
        read(&text);
    }

    #[test]
    fn formatted_hosts_parse_to_the_same_host(text in "[a-zA-Z0-9.:*_%@\\[\\]\\\\/ é\\x00-]{0,40}") {
        if let Ok(host) = text.parse::<Host>() {
            prop_assert_eq!(host.to_string().parse::<Host>(), Ok(host));
        }
    }

    #[test]
    fn every_action_gets_a_decision(host in "\\PC{0,30}", port in any::<u16>(), path in "\\PC{0,30}", tool in "\\PC{0,30}") {
        for action in [
            Action::Net { host, port },
            Action::Read(path.clone().into()),
            Action::Write(path.clone().into()),
            Action::Exec(path.split(' ').map(str::to_owned).collect()),
            Action::Tool { name: tool.clone(), argument: path },
            Action::Model(tool),
        ] {
            prop_assert!(!OPEN.decide(&action).rule.text.is_empty());
        }
    }
}

/// Patterns that backtrack, long lists that are compared with one another, and deep nesting.
#[test]
fn expensive_policies_are_processed_in_time() {
    let stars = format!("models: {{allow: [\"{}b\"]}}\n", "a*".repeat(500));
    let base = BaseLayer::read(&PolicySource::new("stars", stars)).unwrap();
    let hosts: Vec<String> = (0..1_000).map(|index| format!("\"h{index}.example.com:443\"")).collect();
    let many = format!("net: {{enabled: true, allowlist: [{}]}}\n", hosts.join(", "));
    let started = Instant::now();
    assert!(!base.policy().decide(&Action::Model("a".repeat(2_000))).is_allowed());
    let (left, right) = (BaseLayer::read(&PolicySource::new("many", many.as_str())).unwrap(), narrowing(&many));
    assert_eq!(effective(&CeilingLayer::built_in().unwrap(), &left, &[right]).net().allowlist.len(), 1_000);
    read(&"[".repeat(100_000));
    read(&"fs: {".repeat(20_000));
    read(&"- ".repeat(100_000));
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}

fn narrowing(text: &str) -> NarrowingLayer {
    NarrowingLayer::read(&PolicySource::new("narrowing", text)).unwrap()
}
