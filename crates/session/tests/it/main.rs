//! Sessions with a real agent process: the mock agent, unconfined or in the jail, with a scripted model.
//!
//! The test binary is also the agent's program: started with `__agent mock`, it is the mock agent.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod asking;
mod budget;
mod clients;
mod creating;
mod ending;
mod jailed;
mod recovering;
mod stage;
mod turns;

use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let ["__agent", "mock", arguments @ ..] = &*words.iter().map(String::as_str).collect::<Vec<_>>() {
        let arguments = arguments.iter().map(|word| (*word).to_owned());
        let settings = mock::MockSettings::parse(arguments, |name| std::env::var(name).ok()).unwrap();
        return mock::main(settings, std::io::stdin(), std::io::stdout());
    }
    jailed::prepare();
    let directory = tempfile::tempdir().unwrap();
    let default_client = jailed::default_client(&directory);
    let by_default = trial("default_sandbox_is_the_first_that_works", || {
        jailed::default_sandbox_is_the_first_that_works(default_client)
    });
    let trials = [
        clients::trials(),
        jailed::trials(),
        creating::trials(),
        turns::trials(),
        asking::trials(),
        budget::trials(),
        ending::trials(),
        recovering::trials(),
        vec![by_default],
    ];
    libtest_mimic::run(&Arguments::from_args(), trials.into_iter().flatten().collect()).exit_code()
}

/// Returns a trial that runs `test`, and fails when it hangs.
fn trial<F: Future<Output = ()>>(name: &'static str, test: impl FnOnce() -> F + Send + 'static) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), test()).await }).unwrap();
        Ok(())
    })
}

/// Defines `trials()`, which returns a trial for each function.
#[macro_export]
macro_rules! trials {
    ($($test:ident),* $(,)?) => {
        pub(crate) fn trials() -> Vec<libtest_mimic::Trial> {
            vec![$($crate::trial(stringify!($test), $test)),*]
        }
    };
}
