//! The screen of a permission request: the request page by page, and the meaning of typed answers.
//!
//! A request can be allowed only after all of it was shown, or by an answer that names the number of hidden lines.

use base::PrintableText;
use protocol::PermissionReply;

use crate::approval::Approval;

/// Space before each line, so that requests stand below the text of the timeline.
pub(super) const INDENT: usize = 22;
const RESET: &str = "\x1b[0m";

/// Size of the terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScreenSize {
    pub(super) rows: usize,
    pub(super) columns: usize,
}

/// A request on the screen.
pub(super) struct ApprovalView {
    action: PrintableText,
    /// The rows of the whole request, with their styles.
    rows: Vec<String>,
    terms: Vec<PrintableText>,
    page: usize,
    /// The row after the page on the screen.
    position: usize,
    /// The rows that were on the screen.
    seen: usize,
}

/// Meaning of a typed line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TypedAnswer {
    Reply(PermissionReply),
    /// Show the next page.
    More,
    /// Ask again, with this explanation.
    Again(String),
}

impl ApprovalView {
    /// Returns the view of `approval`; without a screen, the whole request is one page.
    pub(super) fn new(approval: Approval, screen: Option<ScreenSize>) -> Self {
        let width = screen.map_or(usize::MAX, |screen| screen.columns.saturating_sub(INDENT + 1).max(20));
        let rows = approval.lines.iter().flat_map(|line| {
            wrap(line.text.as_str(), width).into_iter().map(|row| match line.style {
                "" => row,
                style => format!("{style}{row}{RESET}"),
            })
        });
        let page = screen.map_or(usize::MAX, |screen| screen.rows.saturating_sub(8).max(8));
        Self { action: approval.action, rows: rows.collect(), terms: approval.terms, page, position: 0, seen: 0 }
    }

    /// Returns the headline and the first page.
    pub(super) fn first_page(&mut self) -> String {
        self.position = 0;
        let page = self.next_page();
        format!("{:>8}\x1b[33m? permission {RESET} {}\n{page}", "", self.action)
    }

    /// Returns the next page; after the last one, the first again.
    pub(super) fn next_page(&mut self) -> String {
        if self.position == self.rows.len() {
            self.position = 0;
        }
        let rows: String =
            self.rows.iter().skip(self.position).take(self.page).map(|row| format!("{:>INDENT$}{row}\n", "")).collect();
        self.position = self.position.saturating_add(self.page).min(self.rows.len());
        self.seen = self.seen.max(self.position);
        let rest = match self.rows.len() - self.position {
            0 => self.terms.iter().map(|term| format!("{:>INDENT$}\x1b[2m{term}{RESET}\n", "")).collect(),
            hidden => format!("{:>INDENT$}\x1b[1m… {hidden} more lines, [v]iew{RESET}\n", ""),
        };
        rows + &rest
    }

    /// Returns the choices.
    pub(super) fn prompt(&self) -> String {
        match self.hidden() {
            0 => "allow? [y]es once · [a]lways · [n]o: ".to_owned(),
            hidden => format!("allow? [v]iew more · [n]o · without viewing: yes {hidden} or always {hidden}: "),
        }
    }

    /// Returns the meaning of a typed line.
    pub(super) fn answer(&self, typed: &str) -> TypedAnswer {
        let typed = typed.to_lowercase();
        let mut words = typed.split_whitespace();
        let (word, count, rest) = (words.next().unwrap_or_default(), words.next(), words.next());
        let reply = match word {
            "n" | "no" if count.is_none() => return TypedAnswer::Reply(PermissionReply::Reject),
            "v" | "view" if count.is_none() => return TypedAnswer::More,
            "y" | "yes" => PermissionReply::Once,
            "a" | "always" => PermissionReply::Always,
            _ => return TypedAnswer::Again(format!("not understood; answer {}", self.choices())),
        };
        let hidden = self.hidden();
        let names_hidden = count.and_then(|count| count.parse().ok()) == Some(hidden);
        match (hidden, count) {
            (0, None) => TypedAnswer::Reply(reply),
            (1.., Some(_)) if names_hidden && rest.is_none() => TypedAnswer::Reply(reply),
            (1.., None) => TypedAnswer::Again(format!("{hidden} lines are not shown yet; answer {}", self.choices())),
            _ => TypedAnswer::Again(format!("not understood; answer {}", self.choices())),
        }
    }

    fn choices(&self) -> String {
        match self.hidden() {
            0 => "y, a, n or v".to_owned(),
            hidden => format!("v, n, `yes {hidden}` or `always {hidden}`"),
        }
    }

    /// Returns the number of rows that were never shown.
    fn hidden(&self) -> usize {
        self.rows.len() - self.seen
    }
}

/// Cuts a line into rows of at most `width` columns, so that the terminal does not scroll by more than it shows.
fn wrap(line: &str, width: usize) -> Vec<String> {
    // A tab takes up to eight columns.
    let line = line.replace('\t', "        ");
    let (mut rows, mut row, mut used) = (Vec::new(), String::new(), 0);
    for sign in line.chars() {
        let columns = columns(sign);
        if used + columns > width && !row.is_empty() {
            rows.push(std::mem::take(&mut row));
            used = 0;
        }
        row.push(sign);
        used += columns;
    }
    rows.push(row);
    rows
}

/// Returns the most columns that a terminal uses for a character. Those of East Asia and most symbols can take two.
fn columns(sign: char) -> usize {
    if sign < '\u{1100}' { 1 } else { 2 }
}

#[cfg(test)]
mod tests {
    use protocol::{Permission, PermissionStatus};
    use serde_json::json;

    use super::*;

    fn view(lines: usize, screen: Option<ScreenSize>) -> ApprovalView {
        let command: Vec<String> = (1..=lines).map(|line| format!("echo {line}")).collect();
        let permission = Permission {
            permission_id: "perm_1".parse().unwrap(),
            action: "Bash".into(),
            status: PermissionStatus::Requested,
            metadata: Some(json!({"input": {"command": command.join("\n")}})),
        };
        ApprovalView::new(Approval::of(&permission), screen)
    }

    const SMALL: Option<ScreenSize> = Some(ScreenSize { rows: 18, columns: 80 });

    #[test]
    fn a_short_request_is_shown_at_once_with_its_terms() {
        let mut view = view(1, SMALL);
        let shown = view.first_page();
        for part in ["? permission", "Bash", "$ echo 1", "rule: ", "always: "] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert_eq!(view.answer("Y"), TypedAnswer::Reply(PermissionReply::Once));
        assert_eq!(view.answer("always"), TypedAnswer::Reply(PermissionReply::Always));
        assert_eq!(view.answer("n"), TypedAnswer::Reply(PermissionReply::Reject));
        for unknown in ["", "what?", "yy", "y 3", "no way"] {
            assert!(matches!(view.answer(unknown), TypedAnswer::Again(_)), "{unknown}");
        }
    }

    #[test]
    fn a_long_request_is_allowed_only_when_it_was_shown_or_counted() {
        let mut view = view(25, SMALL);
        let shown = view.first_page();
        assert!(shown.contains("echo 10") && !shown.contains("echo 11"), "{shown}");
        assert!(shown.contains("… 15 more lines, [v]iew") && view.prompt().contains("yes 15"), "{shown}");
        assert!(matches!(view.answer("y"), TypedAnswer::Again(why) if why.starts_with("15 lines are not shown yet")));
        assert!(matches!(view.answer("y 14"), TypedAnswer::Again(_)));
        assert_eq!(view.answer("y 15"), TypedAnswer::Reply(PermissionReply::Once));
        assert_eq!(view.answer("n"), TypedAnswer::Reply(PermissionReply::Reject));
        assert_eq!(view.answer("v"), TypedAnswer::More);
        assert!(view.next_page().contains("… 5 more lines"));
        let last = view.next_page();
        assert!(last.contains("echo 25") && last.contains("always: "), "{last}");
        assert_eq!(view.answer("y"), TypedAnswer::Reply(PermissionReply::Once));
        assert!(view.next_page().contains("$ echo 1\n"), "viewing again starts at the top");
        assert_eq!(view.answer("y"), TypedAnswer::Reply(PermissionReply::Once));
    }

    #[test]
    fn long_lines_are_wrapped_and_never_cut() {
        assert_eq!(wrap("abcdefg", 3), ["abc", "def", "g"]);
        assert_eq!(wrap("", 3), [""]);
        assert_eq!(wrap("a漢字b", 4), ["a漢", "字b"], "wide characters take two columns");
        assert!(view(100, None).first_page().contains("echo 100"));
    }
}
