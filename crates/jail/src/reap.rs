//! Results of reaping child processes.

/// The result of one attempt to reap an ended child.
pub(crate) enum ReapResult {
    /// A child was reaped.
    Child(ReapedChild),
    /// No child has ended.
    NoneEnded(RemainingChildren),
}

/// Children that are still to be reaped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemainingChildren {
    /// Some children still run.
    Running,
    /// There are no children.
    None,
}

/// One child that ended.
pub(crate) struct ReapedChild {
    /// The process id.
    pub(crate) pid: i32,
    /// The exit code, unless a signal ended the child.
    pub(crate) code: Option<i32>,
    /// The signal that ended the child.
    pub(crate) signal: Option<i32>,
    /// Processor time of the child and its reaped children.
    pub(crate) cpu_micros: u64,
    /// The largest resident size of the child.
    pub(crate) peak_rss_bytes: u64,
}
