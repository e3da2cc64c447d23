//! The texts that come with the program, read without a YAML reader: that takes longer than some sandboxes live.
//!
//! They are written plainly, a key a line, and what is plain means here what it means in YAML: a test reads them both
//! ways. A text that is not as plain goes to the YAML reader, and so does every text that is not ours.

use super::assign::Value;
use super::{PolicyDocument, Texts};
use crate::finding::PolicyError;
use crate::key::PolicyKey;
use crate::source::{PolicySource, SourcePosition, Spanned};

impl PolicyDocument {
    /// Reads a text that comes with the program.
    pub(crate) fn of_ours(source: &PolicySource) -> Result<Self, PolicyError> {
        match Reader::default().read(source.text()) {
            Some(document) => Ok(document),
            None => Self::parse(source),
        }
    }
}

/// A piece of a line, and where in the text it stands.
#[derive(Debug, Clone, Copy)]
struct Piece<'a> {
    text: &'a str,
    line: u32,
    offset: usize,
}

impl<'a> Piece<'a> {
    fn place(self) -> SourcePosition {
        SourcePosition { line: self.line, offset: self.offset, length: self.text.len() }
    }

    /// What is left after the first `skipped` bytes.
    fn after(self, skipped: usize) -> Option<Self> {
        Some(Self { text: self.text.get(skipped..)?, offset: self.offset + skipped, ..self })
    }

    /// Both sides of `: `, or what ends in a colon and nothing.
    fn key_and_value(self) -> Option<(&'a str, Self)> {
        let (key, rest) = self.text.split_once(':')?;
        let value = self.after(key.len() + 1)?;
        match rest.strip_prefix(' ') {
            Some(_) => Some((key, value.after(1)?)),
            None => rest.is_empty().then_some((key, value)),
        }
    }

    /// What is between two brackets, entry by entry.
    fn entries(self, open: char, close: char) -> Option<Vec<Self>> {
        let inner = self.text.strip_prefix(open)?.strip_suffix(close)?;
        let mut rest = Self { text: inner, offset: self.offset + 1, ..self };
        let mut entries = Vec::new();
        while !rest.text.is_empty() {
            let entry = rest.text.split(", ").next()?;
            entries.push(Self { text: entry, ..rest });
            rest = rest.after(entry.len() + 2).or_else(|| rest.after(entry.len()))?;
        }
        Some(entries)
    }

    /// A word, or anything between quotes.
    fn scalar(self) -> Option<Spanned<String>> {
        let quoted = self.text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
        let value = match quoted {
            Some(text) if !text.contains(['"', '\\']) => text,
            None if !self.text.is_empty() && self.text.chars().all(is_plain) => self.text,
            _ => return None,
        };
        Some(Spanned::at(value.to_owned(), self.place()))
    }

    fn list(self) -> Option<Texts> {
        let entries = self.entries('[', ']')?.into_iter().map(Self::scalar).collect::<Option<_>>()?;
        // A YAML reader says where a list begins, and not where it ends.
        Some(Spanned::at(entries, SourcePosition { length: 1, ..self.place() }))
    }
}

/// A text on its way to be a document. Whatever is `None` here is not plain.
#[derive(Default)]
struct Reader<'a> {
    document: PolicyDocument,
    section: &'a str,
    /// A list that goes on line by line.
    open: Option<(PolicyKey, Texts)>,
}

impl<'a> Reader<'a> {
    fn read(mut self, text: &'a str) -> Option<PolicyDocument> {
        let mut offset = 0;
        for (line, whole) in (1..).zip(text.split('\n')) {
            let content = whole.trim_start_matches(' ');
            let indent = whole.len() - content.len();
            if !content.is_empty() && !content.starts_with('#') {
                self.line(indent, Piece { text: content, line, offset: offset + indent })?;
            }
            offset += whole.len() + 1;
        }
        self.close()?;
        Some(self.document)
    }

    fn line(&mut self, indent: usize, piece: Piece<'a>) -> Option<()> {
        if indent == 4 {
            let (_, list) = self.open.as_mut()?;
            piece.text.strip_prefix("- ")?;
            if list.value.is_empty() {
                list.position = SourcePosition { length: 0, ..piece.place() };
            }
            list.value.push(piece.after(2)?.scalar()?);
            return Some(());
        }
        self.close()?;
        let (name, value) = piece.key_and_value()?;
        match (indent, value.text) {
            (0, "") => self.section = name,
            (0, "1") if name == "version" => self.document.version = Some(value.scalar()?),
            (0, _) => {
                self.section = name;
                for entry in value.entries('{', '}')? {
                    let (name, value) = entry.key_and_value()?;
                    self.set(name, value)?;
                }
            }
            (2, "") => self.open = Some((self.key(name)?, Spanned::unplaced(Vec::new()))),
            (2, _) => self.set(name, value)?,
            _ => return None,
        }
        Some(())
    }

    fn key(&self, name: &str) -> Option<PolicyKey> {
        format!("{}.{name}", self.section).parse().ok()
    }

    fn set(&mut self, name: &str, value: Piece<'_>) -> Option<()> {
        let key = self.key(name)?;
        let value = match value.list() {
            Some(list) => Value::List(list),
            None => Value::One(value.scalar()?),
        };
        self.document.set(key, value).ok()
    }

    fn close(&mut self) -> Option<()> {
        match self.open.take() {
            // A key with nothing behind it is no list.
            Some((_, list)) if list.value.is_empty() => None,
            Some((key, list)) => self.document.set(key, Value::List(list)).ok(),
            None => Some(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Reader;
    use crate::document::PolicyDocument;
    use crate::preset::{self, Preset};

    #[test]
    fn what_is_ours_is_plain_and_means_what_it_means_in_yaml() {
        let ours = [preset::ceiling(), preset::strictest()];
        for source in ours.into_iter().chain(Preset::ALL.map(Preset::source)) {
            let plain = Reader::default().read(source.text());
            assert_eq!(plain, Some(PolicyDocument::parse(&source).unwrap()), "{}", source.name());
        }
    }

    #[test]
    fn what_is_not_plain_is_left_alone() {
        for text in ["fs: &a\n", "fs:\n  read: ['a']\n", "fs:\n   read: []\n", "net:\n  enabled: no\n", "a: b: c\n"] {
            assert_eq!(Reader::default().read(text), None, "{text}");
        }
    }
}
