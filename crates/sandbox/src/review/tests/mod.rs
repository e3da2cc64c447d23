//! Tests of the review, over layers written by hand the way overlayfs writes them.

mod fixture;
mod saving;
