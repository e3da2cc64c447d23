//! Tests of the review, over layers written by hand the way overlayfs writes them.

mod applying;
mod classifying;
mod committing;
mod crashing;
mod fixture;
mod merging;
mod patching;
mod refusing;
mod saving;
mod sets;
mod showing;
