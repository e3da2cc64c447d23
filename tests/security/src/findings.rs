//! The results of each backend, and their tables in `docs/SANDBOX.md`: one for root, one for an ordinary user.
//!
//! A run of the whole suite computes the table, and fails when the document differs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;

use base::lock;

use crate::attack::{Attack, Group};

const DOCUMENT: &str = include_str!("../../../docs/SANDBOX.md");
/// Path of the document. An ordinary user may not be able to read it.
const PLACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/SANDBOX.md");
const OF_ROOT: [&str; 2] = ["<!-- backends: begin -->\n", "<!-- backends: end -->"];
const OF_A_USER: [&str; 2] = ["<!-- backends of a user: begin -->\n", "<!-- backends of a user: end -->"];
/// The variable that makes the run write the table instead of comparing it.
const WRITE: &str = "VIV_SECURITY_WRITE";

/// The result of an attack in a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Held,
    NotHeld(&'static str),
    Meaningless(&'static str),
}

/// Results by backend and attack.
#[derive(Debug, Default)]
pub(crate) struct Findings(Mutex<BTreeMap<(&'static str, &'static str), Outcome>>);

impl Findings {
    pub(crate) fn add(&self, backend: &'static str, attack: &'static str, outcome: Outcome) {
        lock(&self.0).insert((backend, attack), outcome);
    }

    /// Compares the document with the results of `backends`, or writes them to it. Does nothing after a partial run or
    /// a run without engines.
    pub(crate) fn check(&self, backends: &[&'static str], attacks: &[Attack]) -> Result<(), String> {
        let found = lock(&self.0);
        let attacks: Vec<_> = attacks.iter().filter(|attack| !attack.group.is_of_every_backend()).collect();
        let wanted = |backend: &&'static str| attacks.iter().all(|attack| found.contains_key(&(*backend, attack.name)));
        if backends.len() == 1 || !backends.iter().all(wanted) {
            return Ok(());
        }
        let table = render(backends, &attacks, &found);
        let [begin, end] = if rustix::process::geteuid().is_root() { OF_ROOT } else { OF_A_USER };
        let parts = DOCUMENT.split_once(begin).and_then(|(head, rest)| Some((head, rest.split_once(end)?)));
        let Some((head, (written, tail))) = parts else { return Err(format!("{PLACE} has no markers for the table")) };
        if std::env::var_os(WRITE).is_some() {
            let new = format!("{head}{begin}{table}{end}{tail}");
            return std::fs::write(Path::new(PLACE), new).map_err(|error| format!("{PLACE}: {error}"));
        }
        if written == table {
            return Ok(());
        }
        Err(format!(
            "docs/SANDBOX.md differs from the results; `{WRITE}=1 cargo test -p security` writes them\n{table}"
        ))
    }
}

type Found = BTreeMap<(&'static str, &'static str), Outcome>;

/// Returns the number of stopped attacks by group and backend, and a row for each attack that was not stopped.
fn render(backends: &[&'static str], attacks: &[&Attack], found: &Found) -> String {
    let mut text = format!("\n| attacks | {} |\n| --- |{}\n", backends.join(" | "), " --- |".repeat(backends.len()));
    for group in Group::ALL.into_iter().filter(|group| !group.is_of_every_backend()) {
        let of_group: Vec<_> = attacks.iter().filter(|attack| attack.group == group).collect();
        let cells = backends.iter().map(|backend| {
            let outcomes = of_group.iter().filter_map(|attack| found.get(&(*backend, attack.name)));
            let tried: Vec<_> = outcomes.filter(|outcome| !matches!(outcome, Outcome::Meaningless(_))).collect();
            let held = tried.iter().filter(|outcome| ***outcome == Outcome::Held).count();
            format!("{held} of {} held", tried.len())
        });
        let _ = writeln!(text, "| {group} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    let rows: Vec<String> =
        found.iter().filter_map(|((backend, attack), outcome)| row(backend, attack, *outcome)).collect();
    if rows.is_empty() {
        text.push_str("\nNo attack is without meaning in one of them, and none succeeds.\n\n");
        return text;
    }
    text.push_str("\n| backend | attack | | why |\n| --- | --- | --- | --- |\n");
    text.push_str(&rows.concat());
    text.push('\n');
    text
}

fn row(backend: &str, attack: &str, outcome: Outcome) -> Option<String> {
    let (word, why) = match outcome {
        Outcome::Held => return None,
        Outcome::NotHeld(why) => ("not held", why),
        Outcome::Meaningless(why) => ("without meaning", why),
    };
    Some(format!("| {backend} | {attack} | {word} | {why} |\n"))
}
