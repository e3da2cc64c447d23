//! What is known of children that have ended.

/// What a look for ended children found.
pub(crate) enum Reaped {
    /// One.
    One(Ended),
    /// None, for now or for good.
    None(Left),
}

/// What there is left to reap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// Children that run.
    Children,
    /// No child at all.
    Nothing,
}

/// One child that ended.
pub(crate) struct Ended {
    /// Its number.
    pub(crate) pid: i32,
    /// Exit code, unless a signal ended it.
    pub(crate) code: Option<i32>,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
    /// Processor time of it and its reaped children.
    pub(crate) cpu_micros: u64,
    /// Largest resident size.
    pub(crate) peak_rss_bytes: u64,
}
