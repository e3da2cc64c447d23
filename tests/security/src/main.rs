//! Attacks on a sandbox from inside.
//!
//! Every attack runs twice: as a control without protection, where it must succeed, and in a sandbox, where it must
//! fail. The test program is also the attacker: it is mounted into the sandbox and started there.
//!
//! Not here: attacks on the gateway, which are in the tests of its crate.

#![allow(clippy::expect_used, clippy::panic, reason = "a test that brings its own harness")]

mod attack;
mod findings;
mod fs;
mod host;
mod lead;
mod leftovers;
mod maker;
mod net;
mod otherwise;
mod proc;
mod proxy;
mod raw;
mod review;
mod scene;
mod secrets;
mod spend;
mod stage;
mod table;
mod trial;

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use engines::Engine;
use jail::Spawner;

use crate::attack::Attack;
use crate::findings::Findings;
use crate::maker::Maker;
use crate::stage::Stage;

/// The variable with the secret in the environment of the host process.
const SECRET: &str = "VIV_SECURITY_SECRET";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("__attack") => trial::attack(arguments),
        Some("__probe") => trial::probe(arguments),
        Some("__namespaced") => trial::attack_in_namespaces(arguments),
        Some("__victim") => scene::live_as_victim(arguments),
        Some("__euid") => println!("{}", rustix::process::geteuid().as_raw()),
        Some("__spin") => proc::spin(),
        Some("__survive") => proc::survive(&arguments.next().unwrap_or_default()),
        Some("__internet") => proxy::internet::live(arguments),
        Some("__hold") => host::hold(),
        Some("__host") => spend::live(arguments),
        Some("__flood") => spend::flood(arguments),
        Some("__agent") => return spend::act_as_agent(arguments.skip(1)),
        Some("__write_mapped") => review::write_mapped(arguments),
        Some("__table") => print!("{}", table::render(&attacks())),
        _ => match std::env::var(SECRET) {
            Ok(secret) => return suite(secret),
            Err(_) => start_over(),
        },
    }
    ExitCode::SUCCESS
}

/// Returns all attacks.
fn attacks() -> Vec<Attack> {
    [
        fs::attacks(),
        net::attacks(),
        proxy::attacks(),
        proc::attacks(),
        secrets::attacks(),
        host::attacks(),
        review::attacks(),
        spend::attacks(),
    ]
    .concat()
}

/// Restarts this program as a careless host: with a secret in its arguments, its environment and an inherited descriptor,
/// and with another inherited descriptor of the root directory.
fn start_over() {
    let mut random = [0; 16];
    std::fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut random)).expect("random");
    let secret = random.iter().fold("viv-secret-".to_owned(), |text, byte| format!("{text}{byte:02x}"));
    let mut file = tempfile::tempfile().expect("file");
    file.write_all(secret.as_bytes()).expect("write");
    let top = std::fs::File::open("/").expect("/");
    raw::leak_as(file.as_fd(), 10).expect("descriptor 10");
    raw::leak_as(top.as_fd(), 251).expect("descriptor 251");
    let program = std::env::current_exe().expect("program");
    let error = Command::new(program)
        .arg0(format!("host {secret}"))
        .args(std::env::args_os().skip(1))
        .env(SECRET, secret)
        .exec();
    panic!("cannot restart: {error}");
}

fn suite(secret: String) -> ExitCode {
    let mut arguments = libtest_mimic::Arguments::from_args();
    // More threads than cores, because most attacks wait.
    arguments.test_threads.get_or_insert(6);
    let spawner = Arc::new(Spawner::fork().expect("spawner"));
    let before = leftovers::Machine::look();
    let engines = if arguments.list { Vec::new() } else { Engine::start_all() };
    let root = tempfile::Builder::new().prefix("viv-security-").tempdir().expect("root");
    let stages = stages(&Maker::all(&spawner, &engines, &root.path().join("containers")), &secret, root.path());
    let (attacks, findings) = (attacks(), Arc::new(Findings::default()));
    let mut trials = trial::all(&stages, &attacks, &findings);
    trials.push(table::trial(attacks.clone()));
    trials.push(proxy::placeholder::trial(Arc::clone(&stages[0])));
    let conclusion = libtest_mimic::run(&arguments, trials);
    let backends: Vec<_> = stages.iter().map(|stage| stage.maker.name()).collect();
    drop(stages);
    drop(engines);
    let root = (root.path().to_owned(), root.close());
    let left = leftovers::check(&before, &root.0).and_then(|()| root.1.map_err(|error| error.to_string()));
    let told = left.map_err(|left| format!("the suite left something behind: {left}"));
    match told.and_then(|()| findings.check(&backends, &attacks)) {
        Ok(()) => conclusion.exit_code(),
        Err(told) => {
            eprintln!("{told}");
            ExitCode::FAILURE
        }
    }
}

/// Returns one stage for each backend; they share everything else.
fn stages(makers: &[Maker], secret: &str, root: &Path) -> Vec<Arc<Stage>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("runtime");
    let runtime = Arc::new(runtime);
    let program = std::env::current_exe().expect("program").canonicalize().expect("program");
    let root = root.canonicalize().expect("root");
    scene::plant(&root, &program).expect("planted program");
    let stage = |maker: &Maker| {
        let (runtime, maker, secret) = (Arc::clone(&runtime), maker.clone(), secret.to_owned());
        Arc::new(Stage { runtime, maker, program: program.clone(), secret, root: root.clone() })
    };
    makers.iter().map(stage).collect()
}
