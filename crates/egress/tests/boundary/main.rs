//! The proxy from inside a sandbox, over real connections, with a small internet of its own behind it.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, which is its purpose")]

mod denial;
mod support;
mod world;
