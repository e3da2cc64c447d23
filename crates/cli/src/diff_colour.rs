//! Colours for unified diffs on a terminal.

use base::PrintableText;

const BOLD: &str = "\x1b[1m";
const CYAN: &str = "\x1b[36m";
const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";

/// Returns a diff with a colour for each changed line, hunk and file.
pub(crate) fn coloured(diff: &str) -> String {
    let mut in_hunk = false;
    let line = |line: &str| {
        if line.starts_with("diff ") {
            in_hunk = false;
        } else if line.starts_with("@@") {
            in_hunk = true;
        }
        let style = match line.as_bytes().first() {
            _ if line.starts_with("@@") => CYAN,
            // Before a hunk, `+++` and `---` name the files.
            _ if !in_hunk => BOLD,
            Some(b'+') => GREEN,
            Some(b'-') => RED,
            _ => "",
        };
        let shown = PrintableText::exact_line(line.trim_end_matches('\n'));
        if style.is_empty() { format!("{shown}\n") } else { format!("{style}{shown}\x1b[0m\n") }
    };
    diff.split_inclusive('\n').map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_coloured_by_kind_and_never_drive_the_terminal() {
        let shown = coloured("diff --git a b\n--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\x1b[2J\n same\n--- sql comment\n");
        let expected = "\x1b[1mdiff --git a b\x1b[0m\n\x1b[1m--- a\x1b[0m\n\x1b[1m+++ b\x1b[0m\n\
            \x1b[36m@@ -1 +1 @@\x1b[0m\n\x1b[31m-old\x1b[0m\n\x1b[32m+new^[[2J\x1b[0m\n same\n\
            \x1b[31m--- sql comment\x1b[0m\n";
        assert_eq!(shown, expected);
    }
}
