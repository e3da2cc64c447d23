//! What each backend was found to hold, and the tables of it in `docs/SANDBOX.md`: one of root's backends, one of an
//! ordinary user's.
//!
//! A table is made of a run of the whole suite, and the run fails when the document says anything else.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;

use base::lock;

use crate::attack::{Attack, Group};

const DOCUMENT: &str = include_str!("../../../docs/SANDBOX.md");
/// Where it lies; perhaps out of the reach of an ordinary user.
const PLACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/SANDBOX.md");
const OF_ROOT: [&str; 2] = ["<!-- backends: begin -->\n", "<!-- backends: end -->"];
const OF_A_USER: [&str; 2] = ["<!-- backends of a user: begin -->\n", "<!-- backends of a user: end -->"];
/// Makes the run write the table instead of holding it against the document.
const WRITE: &str = "VIV_SECURITY_WRITE";

/// How an attack ended in a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Held,
    NotHeld(&'static str),
    Meaningless(&'static str),
}

/// What was found, by backend and attack.
#[derive(Debug, Default)]
pub(crate) struct Findings(Mutex<BTreeMap<(&'static str, &'static str), Outcome>>);

impl Findings {
    pub(crate) fn add(&self, backend: &'static str, attack: &'static str, outcome: Outcome) {
        lock(&self.0).insert((backend, attack), outcome);
    }

    /// Holds the document against what was found of `backends`, or writes it there. A run of a part of the suite, or
    /// without engines, has nothing to say.
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
        let Some((head, (written, tail))) = parts else { return Err(format!("{PLACE} has no place for the table")) };
        if std::env::var_os(WRITE).is_some() {
            let new = format!("{head}{begin}{table}{end}{tail}");
            return std::fs::write(Path::new(PLACE), new).map_err(|error| format!("{PLACE}: {error}"));
        }
        if written == table {
            return Ok(());
        }
        Err(format!(
            "docs/SANDBOX.md does not say what was found: `{WRITE}=1 cargo test -p security` writes it\n{table}"
        ))
    }
}

type Found = BTreeMap<(&'static str, &'static str), Outcome>;

/// How many attacks of each group every backend stops, and one row for each that it does not.
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
