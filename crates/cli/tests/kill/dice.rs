//! Reproducible random numbers.

use std::sync::{Arc, Mutex};

use uuid::Uuid;

/// Random number generator with a seed (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Dice(Arc<Mutex<u64>>);

impl Dice {
    /// Uses the seed in `VIV_TEST_SEED`, else a random one. The seed is printed, so that a failure can be repeated.
    pub(crate) fn seeded() -> Self {
        let given = std::env::var("VIV_TEST_SEED").ok().map(|seed| seed.parse().unwrap());
        let seed = given.unwrap_or_else(|| Uuid::new_v4().as_u64_pair().1);
        println!("VIV_TEST_SEED={seed}");
        Self(Arc::new(Mutex::new(seed)))
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&self, end: u64) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
