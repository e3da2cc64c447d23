//! Fixtures that tests of several crates share. A dev-dependency only: the product never uses this crate.

mod mutation;
mod random;
mod wait;

pub use mutation::try_mutations;
pub use random::SeededRandom;
pub use wait::{
    WAIT_LIMIT, becomes_true, hang, pause, pause_async, poll_pause, poll_pause_async, wait_until, wait_until_async,
};
