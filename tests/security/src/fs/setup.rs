//! Attacks on the set-up of a sandbox: files that one run leaves for the next set-up.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use sandbox::SandboxError;

use crate::attack::{Attack, Group::Fs, Place, Verdict, Walls, scenario};
use crate::scene::Scene;
use crate::stage::{Stage, command};

pub(crate) fn attacks() -> Vec<Attack> {
    vec![
        scenario(
            Fs,
            "fs_setup_planted_link",
            "replace `.git` by a link, so that the next set-up writes outside",
            "a set-up that makes its mount points by name does",
            planted_link,
        ),
        scenario(
            Fs,
            "fs_setup_race",
            "exchange a directory for a link while sandboxes are made",
            "a reader that goes by name is led astray",
            race,
        ),
        scenario(
            Fs,
            "fs_setup_workdir",
            "start in a directory the host left open, by /proc/self/fd",
            "a plain process starts there",
            workdir,
        ),
    ]
}

/// Creates mount points by name, as sandboxes do that mask files by bind mounts.
fn make_by_name(workspace: &Path) {
    let _ = fs::create_dir_all(workspace.join(".git/hooks"));
    let _ = fs::write(workspace.join(".git/config"), "");
}

fn planted_link(stage: &Stage, place: Place) -> Verdict {
    let scene = stage.scene();
    let workspace = scene.workspace();
    fs::remove_dir_all(workspace.join(".git")).expect("remove");
    symlink(scene.outside(), workspace.join(".git")).expect("link");
    symlink(scene.outside().join("target"), workspace.join("conf/.env.local")).expect("link");
    match place {
        Place::Outside => make_by_name(&workspace),
        Place::Inside => {
            for walls in [Walls::Usual, Walls::Bound] {
                match stage.sandbox(walls, &workspace) {
                    Ok(sandbox) => stage.destroy(&*sandbox),
                    // This backend has no bind workspace.
                    Err(SandboxError::Unavailable { .. }) if stage.maker.has_own_kernel() => {}
                    Err(error) => panic!("no sandbox: {error}"),
                }
            }
        }
    }
    let mut names: Vec<_> =
        fs::read_dir(scene.outside()).expect("outside").flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    let harmed = scene.harm().is_some() || names != [".env", "home", "host.sock", "target"];
    Verdict::when(harmed, format!("outside holds {names:?}"))
}

fn race(stage: &Stage, place: Place) -> Verdict {
    let scene = stage.scene();
    let (conf, link) = (scene.workspace().join("conf"), scene.workspace().join("conf-link"));
    symlink(scene.outside(), &link).expect("link");
    // The secret exists only outside.
    fs::write(conf.join(".env"), "harmless").expect("write");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let _ = renameat_with(CWD, &conf, CWD, &link, RenameFlags::EXCHANGE);
            }
        });
        let verdict = match place {
            Place::Outside => read_by_name(&scene, &stage.secret),
            Place::Inside => read_while_racing(stage, &scene),
        };
        over.store(true, Ordering::Relaxed);
        verdict
    })
}

/// Reads `conf/.env` until it is the file outside.
fn read_by_name(scene: &Scene, secret: &str) -> Verdict {
    let led =
        (0..100_000).any(|_| fs::read_to_string(scene.workspace().join("conf/.env")).is_ok_and(|text| text == secret));
    Verdict::when(led, "what was read")
}

fn read_while_racing(stage: &Stage, scene: &Scene) -> Verdict {
    for _ in 0..25 {
        // A set-up that detects the change may fail.
        let Ok(sandbox) = stage.sandbox(Walls::Usual, &scene.workspace()) else { continue };
        let mut shell = command(&[]);
        shell.command = ["sh", "-c", "cat conf/.env conf-link/.env"].map(str::to_owned).to_vec();
        let result = stage.runtime.block_on(sandbox::run(&*sandbox, shell, &mut |_, _| {})).expect("run");
        stage.destroy(&*sandbox);
        if String::from_utf8_lossy(&result.stdout).contains(&stage.secret) {
            return Verdict::Succeeded("the secret came out".into());
        }
    }
    Verdict::when(scene.harm().is_some(), "25 sandboxes were made")
}

/// Guesses the number of a directory that the host left open; the command prints its working directory.
fn workdir(stage: &Stage, place: Place) -> Verdict {
    let scene = stage.scene();
    let tell = ["stat", "-c", "%n", "proc/self/root", "etc/shadow", "root"];
    if place == Place::Outside {
        let output = std::process::Command::new(tell[0]).args(&tell[1..]).current_dir("/proc/self/fd/251").output();
        let output = output.expect("control");
        return Verdict::when(String::from_utf8_lossy(&output.stdout).contains("etc/shadow"), format!("{output:?}"));
    }
    let sandbox = stage.sandbox(Walls::Usual, &scene.workspace()).expect("sandbox");
    let mut told = String::new();
    for descriptor in (3..40).chain([251]) {
        let mut spec = command(&[]);
        spec.command = tell.map(str::to_owned).to_vec();
        spec.workdir = Some(format!("/proc/self/fd/{descriptor}"));
        if let Ok(result) = stage.runtime.block_on(sandbox::run(&*sandbox, spec, &mut |_, _| {})) {
            told.push_str(&String::from_utf8_lossy(&result.stdout).replace('\n', " "));
        }
    }
    stage.destroy(&*sandbox);
    Verdict::when(told.contains("etc/shadow"), format!("started in {told:?}"))
}
