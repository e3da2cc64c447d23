//! Many files as one stream: tar.

mod pack;
mod unpack;

pub(super) use self::pack::pack;
pub(super) use self::unpack::unpack;
