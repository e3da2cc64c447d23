//! Fixtures that tests of several crates share. A dev-dependency only: the product never uses this crate.
//!
//! Features add what needs more dependencies: `program` runs the `viv` binary and a stub of a model server, `stub_vendor`
//! sends exact bytes to the gateway, `sessions` opens a session host in the test process, and `sse` reads server-sent
//! events.

#[cfg(feature = "program")]
mod chat_stub;
mod mutation;
#[cfg(feature = "program")]
mod program;
mod random;
#[cfg(feature = "sessions")]
mod sessions;
#[cfg(feature = "sse")]
mod sse;
#[cfg(feature = "stub_vendor")]
pub mod stub_vendor;
#[cfg(feature = "stub_vendor")]
mod vendor_rules;
mod wait;

#[cfg(feature = "program")]
pub use chat_stub::{ChatStub, StubBehaviour, StubCall, StubGate};
pub use mutation::try_mutations;
#[cfg(feature = "program")]
pub use program::{ProgramOutput, VivFixture, listening_address, run_to_end, wait_for_exit};
pub use random::SeededRandom;
#[cfg(feature = "sessions")]
pub use sessions::{SessionHostFixture, unconfined_policy};
#[cfg(feature = "sse")]
pub use sse::{SseFrame, SseReader, sse_frames};
#[cfg(feature = "stub_vendor")]
pub use vendor_rules::check_vendor_request;
pub use wait::{
    WAIT_LIMIT, becomes_true, hang, pause, pause_async, poll_pause, poll_pause_async, wait_until, wait_until_async,
};
