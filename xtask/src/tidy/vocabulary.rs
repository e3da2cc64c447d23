//! One name for each idea: docs/glossary.md lists the terms, and the words that texts for users must not contain.

use super::Finding;
use crate::source;
use crate::tree::Tree;

const GLOSSARY: &str = "docs/glossary.md";

/// Ordinary phrases that contain a word to avoid: the text before the word, and the text that begins with it.
const EXCEPTIONS: &[(&str, &str)] = &[("", "is no longer"), ("there ", "is no")];

/// The two tables of the glossary.
struct Glossary<'a> {
    /// Each term with its line.
    terms: Vec<(usize, &'a str)>,
    /// Each word to avoid with the word to write instead.
    avoided: Vec<(&'a str, &'a str)>,
}

/// Finds terms that nothing uses, and words to avoid in documents and in string literals of the product.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(GLOSSARY) else {
        return vec![Finding::new(GLOSSARY, 1, "the glossary is missing", "restore the file")];
    };
    let glossary = Glossary::parse(text);
    let mut findings = unused_terms(tree, &glossary);
    for (path, text) in tree.documents().filter(|(path, _)| *path != GLOSSARY) {
        findings.extend(avoided_words(&glossary, path, text));
    }
    for (path, text) in tree.rust().filter(|(path, _)| path.starts_with("crates/") && path.contains("/src/")) {
        findings.extend(avoided_words(&glossary, path, &only_literals(text)));
    }
    findings
}

impl<'a> Glossary<'a> {
    fn parse(text: &'a str) -> Self {
        let (mut terms, mut avoided) = (Vec::new(), Vec::new());
        let mut in_avoided = false;
        for (line, content) in (1..).zip(text.lines()) {
            in_avoided |= content.starts_with("## Words to avoid");
            let mut cells = content.split('|').map(str::trim).skip(1);
            let (Some(first), Some(second)) = (cells.next(), cells.next()) else { continue };
            if matches!(first, "term" | "instead of") || first.starts_with("---") {
                continue;
            }
            if in_avoided {
                avoided.push((first, second));
            } else {
                terms.push((line, first));
            }
        }
        Self { terms, avoided }
    }
}

fn unused_terms(tree: &Tree, glossary: &Glossary<'_>) -> Vec<Finding> {
    let texts: Vec<String> = (tree.rust().chain(tree.documents()))
        .filter(|(path, _)| *path != GLOSSARY)
        .map(|(_, text)| text.to_lowercase())
        .collect();
    let unused = glossary.terms.iter().filter(|(_, term)| !texts.iter().any(|text| uses_term(text, term)));
    let finding = |(line, term): &(usize, &str)| {
        Finding::new(GLOSSARY, *line, format!("nothing uses the term `{term}`"), "use the term, or remove its row")
    };
    unused.map(finding).collect()
}

/// Returns whether lower-case `text` contains `term`, also as part of an identifier such as `ChangeSet`.
fn uses_term(text: &str, term: &str) -> bool {
    let term = term.to_lowercase();
    let joined: String = term.chars().filter(|letter| !matches!(letter, ' ' | '-')).collect();
    text.contains(&term) || text.contains(&joined) || text.contains(&term.replace([' ', '-'], "_"))
}

fn avoided_words(glossary: &Glossary<'_>, path: &str, text: &str) -> Vec<Finding> {
    let lower = text.to_lowercase();
    let mut findings = Vec::new();
    for (word, instead) in &glossary.avoided {
        for at in source::words(&lower, word) {
            let (before, rest) = lower.split_at(at);
            if EXCEPTIONS.iter().any(|(lead, phrase)| before.ends_with(lead) && rest.starts_with(phrase)) {
                continue;
            }
            let problem = format!("`{word}` is a word to avoid");
            findings.push(Finding::new(path, source::line(&lower, at), problem, format!("write: {instead}")));
        }
    }
    findings
}

/// Returns `text` with everything blanked but its string literals.
fn only_literals(text: &str) -> String {
    let code = source::code(text);
    let comments = source::comments(text);
    let keep = |index: usize| code.as_bytes()[index] == b' ' && !comments.iter().any(|range| range.contains(&index));
    let bytes = text.bytes().enumerate();
    let kept = bytes.map(|(index, byte)| if byte == b'\n' || keep(index) { byte } else { b' ' });
    String::from_utf8_lossy(&kept.collect::<Vec<_>>()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: &str = "| term | meaning |\n| --- | --- |\n| hold | An amount. |\n| change set | Files. |\n\
                          ## Words to avoid\n| instead of | write |\n| --- | --- |\n| till | billing |\n";

    #[track_caller]
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let all: Vec<_> = std::iter::once(&(GLOSSARY, TABLES)).chain(files).copied().collect();
        let found: Vec<_> = super::check(&Tree::of(&all)).into_iter().map(|finding| finding.problem).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn unused_term_is_found() {
        check(&[("crates/a/src/a.rs", "struct Hold;")], &["nothing uses the term `change set`"]);
        check(&[("crates/a/src/a.rs", "struct Hold; struct ChangeSet;")], &[]);
    }

    #[test]
    fn word_to_avoid_is_found_in_documents_and_strings_but_not_in_code() {
        let used = "struct Hold; struct ChangeSet;";
        check(&[("docs/a.md", "The Till."), ("crates/a/src/a.rs", used)], &["`till` is a word to avoid"]);
        let string = format!("{used} const A: &str = \"the till\"; // till");
        check(&[("crates/a/src/a.rs", &string)], &["`till` is a word to avoid"]);
        check(&[("crates/a/src/a.rs", &format!("{used} fn till() {{}} // till"))], &[]);
    }
}
