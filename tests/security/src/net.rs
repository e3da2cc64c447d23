//! Attacks on the walls of the network.

mod families;
mod reach;
mod shape;

use crate::attack::Attack;

pub(crate) fn attacks() -> Vec<Attack> {
    [families::attacks(), reach::attacks(), shape::attacks()].concat()
}
