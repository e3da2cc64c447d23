//! Tests of the review, over layers written by hand the way overlayfs writes them.

mod applying;
mod crashing;
mod fixture;
mod merging;
mod refusing;
mod saving;
mod showing;
