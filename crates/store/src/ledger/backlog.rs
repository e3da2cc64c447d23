//! Lines of the daybook that this process wrote or read and that are not in the tables yet: whoever carries them need
//! not read them again.

use super::daybook::Place;
use super::entry::Line;

/// So many lines are carried at once, and need not wait for more: they take up half a kilobyte each.
const MANY_LINES: usize = 2_048;
/// More are not kept: what comes then is read from the daybook.
const MOST_LINES: usize = 4 * MANY_LINES;

/// Lines that stand in the daybook one after another.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    pub(super) generation: u64,
    /// Where the first of them begins, and where the last one ends.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Each with its length in bytes.
    lines: Vec<(Line, u64)>,
}

impl Backlog {
    /// Adds the line that stands at `place`. One that does not follow the last begins a new backlog.
    pub(super) fn push(&mut self, line: Line, place: Place) {
        let Place { generation, start, bytes } = place;
        if (generation, start) != (self.generation, self.end) || self.lines.len() >= MOST_LINES {
            *self = Self { generation, start, end: start, lines: Vec::new() };
        }
        self.lines.push((line, bytes));
        self.end = start + bytes;
    }

    /// The lines from byte `from` of the daybook on; none: that is not where one of them begins, or where the last ends.
    pub(super) fn after(self, from: u64) -> Option<impl Iterator<Item = Line>> {
        let (mut at, mut count) = (self.start, 0);
        while at < from {
            at += self.lines.get(count)?.1;
            count += 1;
        }
        (at == from).then(|| self.lines.into_iter().skip(count).map(|(line, _)| line))
    }

    /// Whether it is time to carry them, however short they have been waiting.
    pub(super) fn is_long(&self) -> bool {
        self.lines.len() >= MANY_LINES
    }

    /// All of it; what comes next follows it.
    pub(super) fn take(&mut self) -> Self {
        // As much will come again, most likely.
        let lines = Vec::with_capacity(self.lines.len());
        let rest = Self { generation: self.generation, start: self.end, end: self.end, lines };
        std::mem::replace(self, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::Entry;
    use super::*;

    #[test]
    fn lines_are_kept_as_long_as_one_follows_the_other() {
        let mut backlog = Backlog::default();
        let mut push = |generation, start| {
            backlog.push(Line { at: 0, step: Entry::Forget }, Place { generation, start, bytes: 10 });
            (backlog.start, backlog.end, backlog.lines.len())
        };
        assert_eq!(push(1, 20), (20, 30, 1));
        assert_eq!(push(1, 30), (20, 40, 2));
        assert_eq!(push(1, 50), (50, 60, 1), "somebody wrote in between");
        assert_eq!(push(2, 60), (60, 70, 1), "the daybook was replaced");
        assert_eq!(backlog.take().lines.len(), 1);
        assert_eq!((backlog.start, backlog.end, backlog.lines.len()), (70, 70, 0));
    }

    #[test]
    fn lines_that_somebody_else_carried_are_passed_over() {
        let after = |from| {
            let mut backlog = Backlog::default();
            for (at, start) in [(1, 20), (2, 30), (3, 40)] {
                backlog.push(Line { at, step: Entry::Forget }, Place { generation: 1, start, bytes: 10 });
            }
            backlog.after(from).map(|lines| lines.map(|line| line.at).collect::<Vec<_>>())
        };
        assert_eq!(after(20), Some(vec![1, 2, 3]));
        assert_eq!(after(40), Some(vec![3]));
        assert_eq!(after(50), Some(vec![]));
        for elsewhere in [10, 35, 60] {
            assert_eq!(after(elsewhere), None, "{elsewhere}");
        }
    }
}
