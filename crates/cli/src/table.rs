//! Tables as aligned columns, tab-separated lines, or CSV.
//!
//! A cell is one line: unsafe characters, line ends and tabs in a cell are escaped.

use std::fmt::Write as _;

use base::PrintableText;

use crate::output::stdout_is_terminal;
pub(crate) use crate::output::{print, print_exact, print_json};

/// Rows with a heading.
pub(crate) struct TextTable<const COLUMNS: usize> {
    pub(crate) head: [&'static str; COLUMNS],
    pub(crate) rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> TextTable<COLUMNS> {
    /// Renders aligned columns for a terminal, tab-separated lines without a heading for a pipe.
    pub(crate) fn text(&self) -> String {
        if stdout_is_terminal() { self.columns() } else { self.tabs() }
    }

    /// Renders CSV with a heading (RFC 4180).
    pub(crate) fn csv(&self) -> String {
        let head = self.head.map(|name| name.to_lowercase().replace(' ', "_"));
        let lines = std::iter::once(&head).chain(&self.rows).map(|row| {
            let cells: Vec<String> = row.iter().map(|cell| quoted(cell)).collect();
            cells.join(",") + "\r\n"
        });
        lines.collect()
    }

    /// Renders tab-separated lines without a heading.
    pub(crate) fn tabs(&self) -> String {
        self.printable_rows().map(|row| row.join("\t") + "\n").collect()
    }

    fn columns(&self) -> String {
        let head = self.head.map(ToOwned::to_owned);
        let all: Vec<[String; COLUMNS]> = std::iter::once(head).chain(self.printable_rows()).collect();
        let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; COLUMNS] = std::array::from_fn(width);
        let mut text = String::new();
        for (number, row) in all.iter().enumerate() {
            let cells: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            let line = cells.join("  ");
            let line = line.trim_end();
            // Writing to a string cannot fail.
            let _ = if number == 0 { writeln!(text, "\x1b[1m{line}\x1b[0m") } else { writeln!(text, "{line}") };
        }
        text
    }

    fn printable_rows(&self) -> impl Iterator<Item = [String; COLUMNS]> {
        self.rows.iter().map(|row| std::array::from_fn(|column| PrintableText::exact_line(&row[column]).into()))
    }
}

fn quoted(cell: &str) -> String {
    // Spreadsheets treat cells with these first characters as formulas.
    let cell = if cell.starts_with(['=', '+', '-', '@']) { format!("'{cell}") } else { cell.to_owned() };
    if cell.contains(['"', ',', '\r', '\n']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_cells_are_quoted_and_never_formulas() {
        let rows = vec![["a,\"b\"".to_owned(), "=1+1".to_owned()]];
        assert_eq!(TextTable { head: ["NAME", "THE SUM"], rows }.csv(), "name,the_sum\r\n\"a,\"\"b\"\"\",'=1+1\r\n");
    }

    #[test]
    fn a_cell_cannot_leave_its_row_or_drive_the_terminal() {
        let rows = vec![["a\r\x1b[2Kfake\n\tb\u{202e}".to_owned()]];
        let table = TextTable { head: ["NAME"], rows };
        assert_eq!(table.tabs(), "a^M^[[2Kfake\\n\\tb<U+202E>\n");
        assert!(table.columns().ends_with("a^M^[[2Kfake\\n\\tb<U+202E>\n"));
    }
}
