//! Exceeding resource limits. Without cgroups, a strict sandbox must not start.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit};
use sandbox::SandboxError;

use crate::attack::{Attack, Group::Proc, Place, Verdict, Walls, program, scenario};
use crate::lead::Lead;
use crate::raw;
use crate::stage::{DISK_BYTES, MEMORY_BYTES, NOFILE, PIDS, Stage, command};

pub(crate) fn attacks() -> Vec<Attack> {
    vec![
        program(Proc, "proc_fork_bomb", "start processes without end", fork_bomb).behind(Walls::Strict),
        program(Proc, "proc_fork_bomb_weaker", "the same where weaker means are accepted", fork_bomb),
        program(Proc, "proc_thread_bomb", "start threads without end", thread_bomb),
        program(Proc, "proc_memory", "take memory without end", memory).behind(Walls::Strict),
        program(Proc, "proc_memory_weaker", "the same where weaker means are accepted", memory),
        program(Proc, "proc_memory_many", "the same in many processes", memory_in_many).behind(Walls::Strict),
        program(Proc, "proc_memory_files", "the same in files that have no name", memory_files).behind(Walls::Strict),
        program(Proc, "proc_swap", "take swap where memory is limited", swap).behind(Walls::Strict),
        scenario(Proc, "proc_processor", "take every processor", "as a plain process", processor),
        program(Proc, "proc_disk", "fill the disk", disk),
        program(Proc, "proc_disk_places", "fill every writable place in turn", disk_places),
        program(Proc, "proc_disk_unlinked", "fill it with files that are removed but open", disk_unlinked),
        program(Proc, "proc_inodes", "fill it with empty files", inodes),
        program(Proc, "proc_descriptors", "open files without end", descriptors),
        scenario(
            Proc,
            "proc_output_flood",
            "print without end, to fill the host's memory",
            "without a limit everything is kept",
            output_flood,
        ),
    ]
}

/// Starts `count` processes that wait for each other; returns how many ran at once.
fn processes(count: usize) -> io::Result<usize> {
    let (wait, hold) = rustix::pipe::pipe()?;
    let mut children = Vec::new();
    while children.len() < count {
        match raw::fork() {
            Ok(0) => {
                drop(hold);
                let _ = rustix::io::read(&wait, &mut [0; 1]);
                raw::exit(0);
            }
            Ok(child) => children.push(child),
            Err(_) => break,
        }
    }
    drop(hold);
    let started = children.len();
    for child in children {
        raw::wait(child)?;
    }
    Ok(started)
}

fn fork_bomb(_: &Lead) -> Verdict {
    let wanted = PIDS * 3;
    let started = processes(wanted).expect("processes");
    Verdict::when(started == wanted, format!("{started} of {wanted} processes"))
}

fn thread_bomb(_: &Lead) -> Verdict {
    let wanted = PIDS * 3;
    let held = std::sync::RwLock::new(());
    let count = std::thread::scope(|scope| {
        let gate = held.write();
        let wait = || drop(held.read());
        let begins = |_: &usize| std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, wait).is_ok();
        let begun = (0..wanted).take_while(begins).count();
        drop(gate);
        begun
    });
    Verdict::when(count == wanted, format!("{count} of {wanted} threads"))
}

fn memory(_: &Lead) -> Verdict {
    Verdict::of("three times the limit", raw::take_memory(MEMORY_BYTES * 3, false))
}

fn swap(_: &Lead) -> Verdict {
    Verdict::of("three times the limit, sent to swap", raw::take_memory(MEMORY_BYTES * 3, true))
}

/// Eight processes, each below the limit, hold their memory until all have it.
fn memory_in_many(_: &Lead) -> Verdict {
    let (ready, tell) = rustix::pipe::pipe().expect("pipe");
    let (wait, hold) = rustix::pipe::pipe().expect("pipe");
    let mut children = Vec::new();
    for _ in 0..8 {
        match raw::fork().expect("fork") {
            0 => {
                drop((hold, ready));
                let taken = raw::take_memory(MEMORY_BYTES * 3 / 8, false);
                let _ = rustix::io::write(&tell, if taken.is_ok() { b"y" } else { b"n" });
                drop(tell);
                let _ = rustix::io::read(&wait, &mut [0; 1]);
                raw::exit(0);
            }
            child => children.push(child),
        }
    }
    drop(tell);
    let mut answers = 0;
    // A killed child closes its end without sending a byte.
    while let Ok(1) = rustix::io::read(&ready, &mut [0; 1]) {
        answers += 1;
        if answers == children.len() {
            break;
        }
    }
    drop(hold);
    let alive = children.iter().filter(|child| raw::wait(**child).is_ok_and(|status| libc::WIFEXITED(status))).count();
    Verdict::when(alive == children.len() && answers == alive, format!("{alive} of 8 had theirs"))
}

fn memory_files(_: &Lead) -> Verdict {
    let file = rustix::fs::memfd_create("hoard", rustix::fs::MemfdFlags::empty()).expect("memfd");
    Verdict::of("three times the limit", write_until(fs::File::from(file), MEMORY_BYTES * 3))
}

fn write_until(mut file: fs::File, bytes: usize) -> io::Result<()> {
    let block = vec![0x5a; 1 << 20];
    (0..bytes / block.len()).try_for_each(|_| file.write_all(&block))
}

/// Number of busy threads.
const GREEDY: usize = 24;

/// Uses every processor, and prints the processor time. The threads start together and end by their own clock, because
/// a message to end would have to wait for processor time.
pub(crate) fn spin() {
    let (all, end) = (std::sync::Barrier::new(GREEDY), std::sync::OnceLock::new());
    std::thread::scope(|scope| {
        for _ in 0..GREEDY {
            scope.spawn(|| {
                all.wait();
                let end = *end.get_or_init(|| Instant::now() + Duration::from_secs(2));
                while Instant::now() < end {
                    std::hint::spin_loop();
                }
            });
        }
    });
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    println!("{}", used.tv_sec * 1_000_000 + used.tv_nsec / 1000);
}

/// Uses more than twice its share. The host measures the time, because a separate kernel counts waiting as running.
fn processor(stage: &Stage, place: Place) -> Verdict {
    const TWICE: f64 = 0.2;
    let share = match place {
        // A busy machine may have little processor time for a while.
        Place::Outside => (0..5).map(|_| share_outside(stage)).find(|share| *share > TWICE).unwrap_or_default(),
        Place::Inside => match share_inside(stage) {
            Ok(share) => share,
            Err(missing) => return Verdict::Blocked(format!("never started: {missing}")),
        },
    };
    Verdict::when(share > TWICE, format!("{share:.2} processors"))
}

fn share_outside(stage: &Stage) -> f64 {
    let begun = Instant::now();
    let output = Command::new(&stage.program).arg("__spin").output().expect("control");
    let used = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a time");
    Duration::from_micros(used).as_secs_f64() / begun.elapsed().as_secs_f64()
}

/// Returns the used processor time, or the missing requirement.
fn share_inside(stage: &Stage) -> Result<f64, String> {
    let scene = stage.scene();
    let sandbox = match stage.sandbox(Walls::Slow, &scene.workspace()) {
        Err(SandboxError::Unavailable { missing, .. }) => return Err(missing),
        made => made.expect("sandbox"),
    };
    let ran = stage.exec(&*sandbox, &["__spin"]).expect("run");
    stage.destroy(&*sandbox);
    assert!(ran.exit.code == Some(0) && ran.exit.cpu_micros > 0, "it did not come to its end: {ran:?}");
    Ok(Duration::from_micros(ran.exit.cpu_micros).as_secs_f64() / ran.wall.as_secs_f64())
}

fn disk(lead: &Lead) -> Verdict {
    let file = fs::File::create(lead.work("big")).expect("file");
    Verdict::of("twice the limit", write_until(file, DISK_BYTES * 2))
}

fn disk_places(lead: &Lead) -> Verdict {
    let places: Vec<PathBuf> = if lead.inside {
        ["/workspace", "/tmp", "/dev/shm", "/home/agent"].map(PathBuf::from).into()
    } else {
        ["a", "b", "c", "d"].map(|name| lead.outside.join(name)).into()
    };
    let filled = places.iter().try_for_each(|place| {
        fs::create_dir_all(place)?;
        // Each one alone would fit.
        write_until(fs::File::create(place.join("part"))?, DISK_BYTES / 2)
    });
    Verdict::of("twice the limit in four places", filled)
}

fn disk_unlinked(lead: &Lead) -> Verdict {
    let mut held = Vec::new();
    let filled = (0..8).try_for_each(|number| {
        let path = lead.work(format!("part-{number}"));
        let file = fs::File::create(&path)?;
        fs::remove_file(&path)?;
        held.push(file.try_clone()?);
        write_until(file, DISK_BYTES / 4)
    });
    Verdict::of("twice the limit without names", filled)
}

fn inodes(lead: &Lead) -> Verdict {
    let place = lead.scratch("many");
    fs::create_dir_all(&place).expect("directory");
    // A quarter more than the disk limit.
    let wanted = DISK_BYTES / 16_384 * 5 / 4;
    let made = (0..wanted).try_for_each(|number| fs::File::create(place.join(number.to_string())).map(drop));
    Verdict::of(&format!("{wanted} files"), made)
}

fn descriptors(_: &Lead) -> Verdict {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let files: Result<Vec<_>, _> = (0..NOFILE * 2).map(|_| fs::File::open(Path::new("/dev/null"))).collect();
    Verdict::of("twice the limit", files)
}

fn output_flood(stage: &Stage, place: Place) -> Verdict {
    const LIMIT: usize = 1 << 20;
    let scene = stage.scene();
    let sandbox = stage.sandbox(Walls::Usual, &scene.workspace()).expect("sandbox");
    let mut spec = command(&[]);
    spec.command = ["head", "-c", "33554432", "/dev/zero"].map(str::to_owned).to_vec();
    spec.output_limit = (place == Place::Inside).then_some(LIMIT);
    let result = stage.runtime.block_on(sandbox::run(&*sandbox, spec, &mut |_, _| {})).expect("run");
    stage.destroy(&*sandbox);
    Verdict::when(result.stdout.len() > LIMIT, format!("{} bytes kept", result.stdout.len()))
}
