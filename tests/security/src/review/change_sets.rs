//! Changes that differ from the change set that the person saw.
//!
//! Each attack is one script before the person looks and one script afterwards, as of a process that the agent left
//! running. The control is a host without change sets: it applies the changes that it finds at the time of the apply.

use std::fs;

use sandbox::{ApplyError, SavedChanges, SetSummary};

use super::reviewed_workspace::ReviewedWorkspace;
use crate::attack::{Attack, Group::Review, Place, Verdict, scenario};
use crate::stage::{PROGRAM, Stage};

const CARELESS: &str = "a host without change sets applies the later content";

pub(crate) fn attacks() -> Vec<Attack> {
    let swap = |name, what, run| scenario(Review, name, what, CARELESS, run);
    vec![
        swap("review_swap_content", "swap the content of a file after the person looked", content),
        swap("review_swap_same_times", "the same, with the earlier times and length restored", same_times),
        swap("review_swap_mapped", "the same by a memory mapping, which changes no time", mapped),
        swap("review_rename_over", "rename another file over the one that was shown", renamed),
        swap("review_hard_link", "write through a second hard link of the file that was shown", hard_linked),
        swap("review_directory_to_link", "swap a directory that was shown for a link", directory_to_link),
        swap("review_retargeted_link", "point a link that was shown to another file", retargeted_link),
        swap("review_mode_flip", "make a file executable and writable for all after the person looked", mode_flip),
        swap("review_late_file", "add a file after the person looked", late_file),
        swap("review_late_deletion", "delete a file of the host after the person looked", late_deletion),
        swap("review_file_to_directory", "swap a file for a directory full of other files", file_to_directory),
        scenario(
            Review,
            "review_swap_while_asked",
            "swap the content between the summary and the answer",
            "a host that opens the changes again after the answer applies the later content",
            while_asked,
        ),
        scenario(
            Review,
            "review_writer_during_save",
            "write without pause while the set is saved, shown and applied",
            "a host that reads the layer twice, to show and to apply, reads two contents",
            writer,
        ),
        scenario(
            Review,
            "review_number_reused",
            "make another set get the number that the person saw",
            "a host that applies by number alone applies the other set",
            number_reused,
        ),
        scenario(
            Review,
            "review_short_digest",
            "find a set whose digest begins like the digest that the person saw",
            "a host that accepts two digits of a digest applies the other set",
            short_digest,
        ),
        scenario(
            Review,
            "review_store_tampered",
            "write to the saved contents and sets from inside",
            "a plain process writes to them",
            store_tampered,
        ),
        scenario(
            Review,
            "review_forged_records",
            "leave files in the workspace that look like a manifest and a set",
            "a host that keeps its records in the workspace takes them for its own",
            forged_records,
        ),
    ]
}

/// Plays an attack that changes the workspace after the person looked.
fn swapped(stage: &Stage, place: Place, before: &str, after: &str) -> Verdict {
    let workspace = ReviewedWorkspace::new(stage);
    workspace.inside(before);
    let mut shown = workspace.save();
    let (original, expected) = (workspace.tree(), workspace.after(&shown));
    workspace.inside(after);
    workspace.end();
    if place == Place::Outside {
        let mut current = SavedChanges::open(&workspace.saved()).expect("saved");
        workspace.apply(&mut current).expect("apply");
        return Verdict::when(workspace.tree() != expected, "the later state landed");
    }
    // As the current set, the set that was shown is refused.
    let (number, digest) = (shown.set_number(), shown.digest());
    let refused = matches!(workspace.apply(&mut shown), Err(ApplyError::Stale));
    if !refused || workspace.tree() != original {
        return Verdict::Succeeded("another set than the current one was applied".into());
    }
    // Named by its number and digest, it lands as it was shown.
    let mut earlier = SavedChanges::open_set(&workspace.saved(), number).expect("set");
    assert_eq!(earlier.digest(), digest, "the set changed");
    workspace.apply(&mut earlier).expect("apply");
    Verdict::when(workspace.tree() != expected, "exactly the shown state landed, or the later one")
}

fn content(stage: &Stage, place: Place) -> Verdict {
    swapped(stage, place, "echo harmless > note", "echo harmful > note")
}

fn same_times(stage: &Stage, place: Place) -> Verdict {
    let after = "touch -r note /tmp/times && printf 'harmful!' > note && touch -r /tmp/times note";
    swapped(stage, place, "printf 'harmless' > note", after)
}

fn mapped(stage: &Stage, place: Place) -> Verdict {
    swapped(stage, place, "printf 'harmless' > note", &format!("{PROGRAM} __write_mapped note 'harmful!'"))
}

fn renamed(stage: &Stage, place: Place) -> Verdict {
    swapped(stage, place, "echo harmless > note", "echo harmful > /workspace/.other && mv .other note")
}

fn hard_linked(stage: &Stage, place: Place) -> Verdict {
    swapped(stage, place, "echo harmless > one && ln one two", "echo harmful > two")
}

fn directory_to_link(stage: &Stage, place: Place) -> Verdict {
    let before = "mkdir made && echo harmless > made/file";
    swapped(stage, place, before, "rm -r made && ln -s kept made")
}

fn retargeted_link(stage: &Stage, place: Place) -> Verdict {
    swapped(stage, place, "ln -s kept/one link", "ln -sfn kept/two link")
}

fn mode_flip(stage: &Stage, place: Place) -> Verdict {
    swapped(stage, place, "echo 'echo harmful' > tool && chmod 644 tool", "chmod 777 tool")
}

fn late_file(stage: &Stage, place: Place) -> Verdict {
    swapped(stage, place, "echo harmless > note", "mkdir -p kept/new && echo harmful > kept/new/file")
}

fn late_deletion(stage: &Stage, place: Place) -> Verdict {
    swapped(stage, place, "echo harmless > note", "rm -r kept")
}

fn file_to_directory(stage: &Stage, place: Place) -> Verdict {
    swapped(stage, place, "echo harmless > fresh", "rm fresh && mkdir fresh && echo harmful > fresh/inner")
}

fn while_asked(stage: &Stage, place: Place) -> Verdict {
    let workspace = ReviewedWorkspace::new(stage);
    workspace.inside("echo harmless > note");
    let mut shown = workspace.save();
    let (original, expected) = (workspace.tree(), workspace.after(&shown));
    // The question is on the screen. The next turn of the session ends meanwhile.
    workspace.inside("echo harmful > note");
    workspace.save();
    let answered = match place {
        Place::Inside => &mut shown,
        Place::Outside => &mut SavedChanges::open(&workspace.saved()).expect("saved"),
    };
    let applied = workspace.apply(answered);
    let landed = workspace.tree();
    workspace.end();
    Verdict::when(landed != original && landed != expected, format!("{:?}", applied.map(drop)))
}

fn writer(stage: &Stage, place: Place) -> Verdict {
    let workspace = ReviewedWorkspace::new(stage);
    workspace.inside("printf 'harmless' > note");
    let _writer = workspace.start("while :; do printf 'harmful!' > note; printf 'harmless' > note; done");
    if place == Place::Outside {
        let shown = workspace.live("note");
        let other = (0..1_000_000).any(|_| workspace.live("note") != shown);
        workspace.end();
        return Verdict::when(other, "the layer was read twice");
    }
    for round in 0..8 {
        let mut shown = workspace.save();
        let expected = workspace.after(&shown);
        workspace.apply(&mut shown).expect("apply");
        if workspace.tree() != expected {
            workspace.end();
            return Verdict::Succeeded(format!("round {round}: another content landed"));
        }
    }
    workspace.end();
    Verdict::Blocked("every content that was shown landed".into())
}

fn number_reused(stage: &Stage, place: Place) -> Verdict {
    let workspace = ReviewedWorkspace::new(stage);
    workspace.inside("echo harmless > note");
    let shown = workspace.save().summary().expect("summary");
    let original = workspace.tree();
    // The changes were discarded, so numbers begin again.
    sandbox::discard(&workspace.saved()).expect("discard");
    workspace.inside("echo harmful > note");
    workspace.end();
    let mut named = SavedChanges::open_set(&workspace.saved(), shown.number).expect("set");
    if place == Place::Outside || named.digest() == shown.digest {
        workspace.apply(&mut named).expect("apply");
    }
    Verdict::when(workspace.tree() != original, format!("set {}", shown.number))
}

/// Makes sets until the digest of one begins with the two digits that the careless host compares.
fn short_digest(stage: &Stage, place: Place) -> Verdict {
    let workspace = ReviewedWorkspace::new(stage);
    workspace.inside("echo harmless > note");
    let shown = workspace.save().summary().expect("summary");
    let original = workspace.tree();
    let typed: String = shown.digest.to_string().chars().take(2).collect();
    let accepted = |set: &SetSummary| match place {
        Place::Outside => set.digest.to_string().starts_with(&typed),
        Place::Inside => set.is_named(&typed),
    };
    for number in 0..4096 {
        workspace.upper_file("note", &format!("harmful {number}\n"));
        let mut other = workspace.save();
        if accepted(&other.summary().expect("summary")) {
            workspace.apply(&mut other).expect("apply");
            break;
        }
        // The search inside the sandbox is as long as the agent likes; here a few hundred tries are enough.
        if place == Place::Inside && number > 300 {
            break;
        }
    }
    workspace.end();
    Verdict::when(workspace.tree() != original, format!("`{typed}` was accepted"))
}

fn store_tampered(stage: &Stage, place: Place) -> Verdict {
    let workspace = ReviewedWorkspace::new(stage);
    workspace.inside("echo harmless > note");
    let shown = workspace.save();
    let expected = workspace.after(&shown);
    let saved = workspace.saved();
    let script = format!(
        "for file in {0}/contents/* {0}/sets/* {0}/manifest.json; do echo harmful > $file; done; true",
        saved.display()
    );
    match place {
        Place::Inside => workspace.inside(&script),
        Place::Outside => drop(std::process::Command::new("sh").args(["-c", &script]).status().expect("sh")),
    }
    let Ok(mut again) = SavedChanges::open(&saved) else { return Verdict::Succeeded("the records are gone".into()) };
    let unchanged = again.digest() == shown.digest();
    let applied = workspace.apply(&mut again);
    workspace.end();
    Verdict::when(!unchanged || workspace.tree() != expected, format!("{:?}", applied.map(drop)))
}

fn forged_records(stage: &Stage, place: Place) -> Verdict {
    let workspace = ReviewedWorkspace::new(stage);
    workspace.inside("echo harmless > note");
    let shown = workspace.save();
    // A copy of the real records that says something else, where a careless host would look.
    let manifest = fs::read_to_string(workspace.saved().join("manifest.json")).expect("manifest");
    let forged = manifest.replace("\"note\"", "\"evil\"");
    workspace.inside(&format!("mkdir sets && printf %s '{forged}' | tee manifest.json > sets/1.json"));
    let records = match place {
        Place::Inside => workspace.saved(),
        Place::Outside => workspace.upper(),
    };
    let found = SavedChanges::open(&records).expect("records");
    let names: Vec<_> = found.changes().map(|change| change.path.clone()).collect();
    workspace.end();
    Verdict::when(found.digest() != shown.digest(), format!("the records name {names:?}"))
}
