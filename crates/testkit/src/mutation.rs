//! Deterministic mutations of a fuzz corpus, for tests of the crates whose parsers are fuzzed.
//!
//! `cargo xtask fuzz --steady` runs more of them; without `--steady`, libFuzzer mutates in its own way.

use std::panic::RefUnwindSafe;
use std::path::Path;

use crate::SeededRandom;

/// The default number of inputs. `VIV_FUZZ_RUNS` sets another number, `VIV_FUZZ_TARGET` selects one target.
const DEFAULT_RUNS: u64 = 4_000;

const WORDS: [&[u8]; 12] =
    [b"\n\n", b"data: ", b"\0", b"{", b"}", b"null", b"[DONE]", b"\"index\":1", b"1e999", b"\\u0000", b"\xff", b"[]"];

/// Checks `rule` with the corpus of `target` and with many mutations of it. A rule fails by panicking.
#[expect(clippy::unwrap_used, reason = "only tests call this")]
pub fn try_mutations(target: &str, rule: impl Fn(&[u8]) + RefUnwindSafe) {
    if std::env::var("VIV_FUZZ_TARGET").is_ok_and(|only| only != target) {
        return;
    }
    let runs = std::env::var("VIV_FUZZ_RUNS").ok().map_or(DEFAULT_RUNS, |runs| runs.parse().unwrap());
    let seeds = corpus(target);
    assert!(!seeds.is_empty(), "`{target}` has no corpus");
    for seed in &seeds {
        rule(seed);
    }
    let random = SeededRandom::new(1);
    for run in 0..runs {
        let input = mutated(&seeds, &random);
        let outcome = std::panic::catch_unwind(|| rule(&input));
        assert!(outcome.is_ok(), "`{target}` failed in run {run} with {:?}", String::from_utf8_lossy(&input));
    }
}

#[expect(clippy::unwrap_used, clippy::panic, reason = "only tests call this")]
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Returns one of `seeds` with a few random changes.
fn mutated(seeds: &[Vec<u8>], random: &SeededRandom) -> Vec<u8> {
    let mut input: Vec<u8> = seeds[random.index(seeds.len())].clone();
    for _ in 0..=random.index(6) {
        let at = random.index(input.len() + 1);
        match random.index(6) {
            0 => input.truncate(at),
            1 => drop(input.splice(at..at, WORDS[random.index(WORDS.len())].iter().copied())),
            2 if at < input.len() => input[at] = u8::try_from(random.index(256)).unwrap_or_default(),
            3 => {
                let end = (at + random.index(40)).min(input.len());
                input.drain(at..end);
            }
            4 => {
                let end = (at + random.index(60)).min(input.len());
                let piece = input[at..end].to_vec();
                let to = random.index(input.len() + 1);
                drop(input.splice(to..to, piece));
            }
            _ => {
                let other = &seeds[random.index(seeds.len())];
                let from = random.index(other.len() + 1);
                input.extend_from_slice(&other[from..]);
            }
        }
    }
    input
}
