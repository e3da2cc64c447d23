//! Parses the parts of Markdown documents that checks look at: code, links, headings and fenced blocks.

/// A part of a document with its line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part<'a> {
    pub(crate) line: usize,
    pub(crate) kind: Kind<'a>,
}

/// The kind and content of a part.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    /// Inline code.
    Code(&'a str),
    /// The target of a link.
    Link(&'a str),
    /// A heading, with its level.
    Heading(usize, &'a str),
    /// A fenced block: the text after the fence, and the lines of the block. Its line is that of the first line in it.
    Fence(&'a str, Vec<&'a str>),
}

impl<'a> Part<'a> {
    /// Returns the lines of code in this part with their line numbers.
    pub(crate) fn code(&self) -> Vec<(usize, &'a str)> {
        match &self.kind {
            Kind::Code(code) => vec![(self.line, code)],
            Kind::Fence(_, lines) => (self.line..).zip(lines.iter().copied()).collect(),
            Kind::Link(_) | Kind::Heading(..) => Vec::new(),
        }
    }
}

/// Returns the parts of a document in order.
pub(crate) fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((line, content)) = lines.next() {
        let trimmed = content.trim_start();
        let ticks = &trimmed[..trimmed.len() - trimmed.trim_start_matches('`').len()];
        if ticks.len() >= 3 {
            let inside = lines.by_ref().map(|(_, content)| content).take_while(|content| content.trim() != ticks);
            let kind = Kind::Fence(trimmed[ticks.len()..].trim(), inside.collect());
            parts.push(Part { line: line + 1, kind });
        } else {
            let found = heading(content).into_iter().chain(inline(content));
            parts.extend(found.map(|kind| Part { line, kind }));
        }
    }
    parts
}

/// Returns the anchor of a heading: lower case, dashes for blanks, no punctuation.
pub(crate) fn anchor(heading: &str) -> String {
    let letters = heading.trim().to_lowercase();
    let kept = letters.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

fn heading(line: &str) -> Option<Kind<'_>> {
    let level = line.len() - line.trim_start_matches('#').len();
    let title = line[level..].strip_prefix(' ')?;
    (level > 0).then(|| Kind::Heading(level, title.trim()))
}

fn inline(line: &str) -> Vec<Kind<'_>> {
    let mut found = Vec::new();
    for (index, piece) in line.split('`').enumerate() {
        if index % 2 == 1 {
            found.push(Kind::Code(piece));
        } else {
            found.extend(links(piece));
        }
    }
    found
}

fn links(piece: &str) -> impl Iterator<Item = Kind<'_>> {
    piece.match_indices("](").filter_map(|(at, open)| {
        let target = &piece[at + open.len()..];
        target.split_once(')').map(|(target, _)| Kind::Link(target.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Kind<'_>> {
        parts(text).into_iter().map(|part| part.kind).collect()
    }

    #[test]
    fn line_yields_code_and_links() {
        assert_eq!(
            kinds("see `a b` and [`x`](docs/x.md), [y](#z)"),
            [Kind::Code("a b"), Kind::Code("x"), Kind::Link("docs/x.md"), Kind::Link("#z")]
        );
    }

    #[test]
    fn fence_yields_its_info_and_lines() {
        assert_eq!(
            kinds("```console exit=5\n$ viv `x`\nok\n```\n# T"),
            [Kind::Fence("console exit=5", vec!["$ viv `x`", "ok"]), Kind::Heading(1, "T")]
        );
    }

    #[test]
    fn code_has_its_line_number() {
        let text = "`a`\n```sh\nb\nc\n```\n`d`";
        let code: Vec<_> = parts(text).iter().flat_map(Part::code).collect();
        assert_eq!(code, [(1, "a"), (3, "b"), (4, "c"), (6, "d")]);
    }

    #[test]
    fn anchors_match_rendered_headings() {
        assert_eq!(anchor("Where state lives"), "where-state-lives");
        assert_eq!(anchor("`session_not_found`"), "session_not_found");
    }
}
