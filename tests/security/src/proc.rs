//! Attacks on the kernel, on other processes, and on shared resources.

mod escape;
mod kernel;
mod limits;
mod others;
mod shape;

use crate::attack::Attack;
pub(crate) use escape::survive;
pub(crate) use kernel::take_terminal;
pub(crate) use limits::spin;

pub(crate) fn attacks() -> Vec<Attack> {
    [limits::attacks(), escape::attacks(), shape::attacks(), others::attacks(), kernel::attacks()].concat()
}
