//! Attacks on the review of changes: the person sees one thing, another lands on the host.

mod change_sets;
mod commits;
mod hidden_files;
mod landing;
mod path_classes;
mod record;
mod reviewed_workspace;

use crate::attack::Attack;

pub(crate) use reviewed_workspace::write_mapped;

pub(crate) fn attacks() -> Vec<Attack> {
    [change_sets::attacks(), commits::attacks(), hidden_files::attacks(), path_classes::attacks(), record::attacks()]
        .concat()
}
