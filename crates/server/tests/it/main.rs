//! Tests of the API, over a router and over real sockets.
//!
//! The test binary is also the agent's program: with `__agent mock` it is the mock agent, and with
//! `__serve` a server that can be killed.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod access;
mod agents;
mod answers;
mod bodies;
mod changes;
mod child;
mod client;
mod defects;
mod directories;
mod document;
mod events;
mod feed;
mod files;
mod full_disk;
mod grants;
mod idempotency;
mod killing;
mod lifetime;
mod messages;
mod queue;
mod refusals;
mod replays;
mod sessions;
mod sockets;
mod stage;
mod tokens;
mod usage;

use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &*words.iter().map(String::as_str).collect::<Vec<_>>() {
        ["__agent", "mock", arguments @ ..] => {
            let arguments = arguments.iter().map(|word| (*word).to_owned());
            let settings = mock::MockSettings::parse(arguments, |name| std::env::var(name).ok()).unwrap();
            return mock::main(settings, std::io::stdin(), std::io::stdout());
        }
        ["__serve", directory] => return child::be_the_server(directory.as_ref()),
        _ => {}
    }
    let trials = [
        document::trials(),
        refusals::trials(),
        replays::trials(),
        access::trials(),
        agents::trials(),
        files::trials(),
        grants::trials(),
        idempotency::trials(),
        lifetime::trials(),
        tokens::trials(),
        sessions::trials(),
        messages::trials(),
        queue::trials(),
        events::trials(),
        feed::trials(),
        answers::trials(),
        bodies::trials(),
        defects::trials(),
        directories::trials(),
        sockets::trials(),
        usage::trials(),
        changes::trials(),
        killing::trials(),
        full_disk::trials(),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials.into_iter().flatten().collect()).exit_code()
}

/// Runs `test`; fails after 60 seconds.
fn trial<F: Future<Output = ()>>(name: &'static str, test: impl FnOnce() -> F + Send + 'static) -> Trial {
    trial_within(Duration::from_secs(60), name, test)
}

/// Runs a slow `test` with its own limit.
fn trial_within<F: Future<Output = ()>>(
    bound: Duration,
    name: &'static str,
    test: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(bound, test()).await }).unwrap();
        Ok(())
    })
}

/// Defines one trial for each function, with the function's name.
#[macro_export]
macro_rules! trials {
    ($($test:ident),* $(,)?) => {
        pub(crate) fn trials() -> Vec<libtest_mimic::Trial> {
            vec![$($crate::trial(stringify!($test), $test)),*]
        }
    };
}
