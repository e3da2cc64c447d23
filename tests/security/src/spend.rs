//! Attacks on the resources that the host process spends for a sandbox.

mod flood;
mod host_process;
mod kernel;
mod money;
mod victim_host;

use crate::attack::Attack;

pub(crate) use flood::flood;
pub(crate) use host_process::act_as_agent;
pub(crate) use victim_host::live;

pub(crate) fn attacks() -> Vec<Attack> {
    [host_process::attacks(), kernel::attacks(), money::attacks()].concat()
}
