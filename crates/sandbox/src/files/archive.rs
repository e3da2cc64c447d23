//! Tar archives of files in the workspace.

mod pack;
mod unpack;

pub(super) use self::pack::pack;
pub(super) use self::unpack::unpack;
