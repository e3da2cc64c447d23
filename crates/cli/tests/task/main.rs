//! Tests of `viv task`: the smoke test with the real Claude Code, and every failure class.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod equipment;
mod failing;
mod fixture;
mod smoke;
