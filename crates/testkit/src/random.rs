//! Repeatable random numbers.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// The increment of splitmix64.
const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

/// A random sequence that follows from its seed (splitmix64). Threads may share it.
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    /// Returns the sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// Returns the sequence of the seed in `VIV_TEST_SEED`, or of a random seed. Prints the seed, so that a failed test
    /// can be repeated.
    #[expect(clippy::print_stdout, clippy::expect_used, reason = "only tests call this")]
    pub fn from_environment() -> Self {
        let given = std::env::var("VIV_TEST_SEED").ok().map(|seed| seed.parse().expect("VIV_TEST_SEED is a number"));
        let seed = given.unwrap_or_else(|| RandomState::new().hash_one("seed"));
        println!("VIV_TEST_SEED={seed}");
        Self::new(seed)
    }

    /// Returns a number below `end`; 0 when `end` is 0.
    pub fn below(&self, end: u64) -> u64 {
        let state = self.0.fetch_add(INCREMENT, Ordering::Relaxed).wrapping_add(INCREMENT);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }

    /// Returns an index below `length`; 0 when `length` is 0.
    pub fn index(&self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_the_same_sequence() {
        let (one, other) = (SeededRandom::new(7), SeededRandom::new(7));
        let numbers = |random: &SeededRandom| (0..20).map(|_| random.below(100)).collect::<Vec<_>>();
        let first = numbers(&one);
        assert_eq!(first, numbers(&other));
        assert_ne!(first, numbers(&one), "the sequence goes on");
    }
}
