//! A cursor over bytes whose reads return `None` at the end and never panic.

pub(super) struct ByteCursor<'a>(&'a [u8]);

impl<'a> ByteCursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|two| u16::from_be_bytes([two[0], two[1]]))
    }

    pub(super) fn u24(&mut self) -> Option<u32> {
        self.take(3).map(|three| u32::from_be_bytes([0, three[0], three[1], three[2]]))
    }

    /// Returns the bytes after a one-byte length.
    pub(super) fn vector8(&mut self) -> Option<&'a [u8]> {
        let length = self.u8()?;
        self.take(length.into())
    }

    /// Returns the bytes after a two-byte length.
    pub(super) fn vector16(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(length.into())
    }
}
