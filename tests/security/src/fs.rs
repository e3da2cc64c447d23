//! Attacks on the files of the host.

mod git;
mod mask;
mod mounts;
mod plant;
mod procfs;
mod reach;
mod setup;

use crate::attack::Attack;

pub(crate) fn attacks() -> Vec<Attack> {
    [
        reach::attacks(),
        procfs::attacks(),
        mask::attacks(),
        mounts::attacks(),
        plant::attacks(),
        git::attacks(),
        setup::attacks(),
    ]
    .concat()
}
