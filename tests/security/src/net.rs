//! Attacks on network isolation.

mod families;
mod reach;
mod shape;

use crate::attack::Attack;

pub(crate) fn attacks() -> Vec<Attack> {
    [families::attacks(), reach::attacks(), shape::attacks()].concat()
}
