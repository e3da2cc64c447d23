//! Inputs like those of a corpus, with a few things wrong: the same ones every time.
//!
//! For the tests of the crates whose readers are fuzzed; `cargo fuzz` has its own way to spoil things.

use std::panic::RefUnwindSafe;
use std::path::Path;

/// A short run; `VIV_FUZZ_RUNS` asks for a longer one, and `VIV_FUZZ_TARGET` for one target.
const RUNS: u64 = 4_000;

const WORDS: [&[u8]; 12] =
    [b"\n\n", b"data: ", b"\0", b"{", b"}", b"null", b"[DONE]", b"\"index\":1", b"1e999", b"\\u0000", b"\xff", b"[]"];

/// Holds `rule` for the corpus of `target` and for many inputs like it.
pub(crate) fn check(target: &str, rule: impl Fn(&[u8]) + RefUnwindSafe) {
    if std::env::var("VIV_FUZZ_TARGET").is_ok_and(|only| only != target) {
        return;
    }
    let runs = std::env::var("VIV_FUZZ_RUNS").ok().map_or(RUNS, |runs| runs.parse().unwrap());
    let seeds = corpus(target);
    assert!(!seeds.is_empty(), "`{target}` has a corpus");
    for seed in &seeds {
        rule(seed);
    }
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for run in 0..runs {
        let input = mutated(&seeds, &mut dice);
        let outcome = std::panic::catch_unwind(|| rule(&input));
        assert!(outcome.is_ok(), "`{target}` fails in run {run} on {:?}", String::from_utf8_lossy(&input));
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Numbers that are the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides.max(1) as u64).unwrap()
    }
}

/// An input like one of `seeds`, with a few things wrong.
fn mutated(seeds: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut input = seeds[dice.roll(seeds.len())].clone();
    for _ in 0..=dice.roll(6) {
        let at = dice.roll(input.len() + 1);
        match dice.roll(6) {
            0 => input.truncate(at),
            1 => drop(input.splice(at..at, WORDS[dice.roll(WORDS.len())].iter().copied())),
            2 if at < input.len() => input[at] = u8::try_from(dice.roll(256)).unwrap(),
            3 => {
                let end = (at + dice.roll(40)).min(input.len());
                input.drain(at..end);
            }
            4 => {
                let end = (at + dice.roll(60)).min(input.len());
                let piece = input[at..end].to_vec();
                let to = dice.roll(input.len() + 1);
                drop(input.splice(to..to, piece));
            }
            _ => {
                let other = &seeds[dice.roll(seeds.len())];
                let from = dice.roll(other.len() + 1);
                input.extend_from_slice(&other[from..]);
            }
        }
    }
    input
}
