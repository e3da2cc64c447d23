//! Words of command lines that are shown to people.

/// Quotes a word for a shell, if the word needs quotes.
pub(crate) fn shell_word(word: &str) -> String {
    let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "-_./:=@%+,".contains(sign);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::shell_word;

    #[test]
    fn words_are_quoted_when_a_shell_would_split_or_expand_them() {
        assert_eq!(shell_word("src/a.rs"), "src/a.rs");
        assert_eq!(shell_word("a b"), "'a b'");
        assert_eq!(shell_word("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(shell_word(""), "''");
    }
}
