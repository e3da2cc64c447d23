//! The table of attacks in `docs/SECURITY.md`, generated from the suite.

use std::fmt::Write as _;

use libtest_mimic::Trial;

use crate::attack::{Attack, Group};

const DOCUMENT: &str = include_str!("../../../docs/SECURITY.md");
const BEGIN: &str = "<!-- attacks: begin -->\n";
const END: &str = "<!-- attacks: end -->";

/// Returns the table, with one part for each group.
pub(crate) fn render(attacks: &[Attack]) -> String {
    let mut text = String::new();
    for group in Group::ALL {
        let rows: Vec<_> = attacks.iter().filter(|attack| attack.group == group).collect();
        let _ = writeln!(text, "\n### {group}: {} attacks\n", rows.len());
        text.push_str("| attack | description | control: it succeeds |\n| --- | --- | --- |\n");
        for attack in rows {
            let _ = writeln!(text, "| {} | {} | {} |", attack.name, attack.what, attack.control());
        }
    }
    text.push('\n');
    text
}

/// Checks that the document contains the current table, and that names are unique.
pub(crate) fn trial(attacks: Vec<Attack>) -> Trial {
    Trial::test("the_document_lists_every_attack", move || {
        let written = DOCUMENT.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map(|(table, _)| table);
        if written != Some(render(&attacks).as_str()) {
            return Err(
                "docs/SECURITY.md is out of date: replace the text between its markers by the output of `__table`"
                    .into(),
            );
        }
        let mut names: Vec<_> = attacks.iter().map(|attack| attack.name).collect();
        names.sort_unstable();
        names.dedup();
        let unknown = crate::otherwise::unknown(&attacks);
        if !unknown.is_empty() {
            return Err(format!("unknown attacks: {}", unknown.join(", ")).into());
        }
        if names.len() < 90 || names.len() != attacks.len() {
            return Err(format!("{} attacks of {} names", attacks.len(), names.len()).into());
        }
        Ok(())
    })
}
