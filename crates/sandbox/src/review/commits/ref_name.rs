//! Names of branches and ids of objects, as the sandbox wrote them.
//!
//! The rules are those of `git check-ref-format`. A name that a terminal would not display as it is, is refused as well.

use base::is_plain;

/// The longest accepted name in bytes.
const MAX_NAME: usize = 200;

/// Returns whether `name` is a valid branch name, without `refs/heads/`.
pub(crate) fn is_valid_branch(name: &str) -> bool {
    let forbidden = |sign: char| !is_plain(sign) || matches!(sign, ' ' | '~' | '^' | ':' | '?' | '*' | '[' | '\\');
    let part_is_valid =
        |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with('.') && !part.ends_with(".lock");
    !name.is_empty()
        && name.len() <= MAX_NAME
        && name != "@"
        && !name.starts_with('-')
        && !name.contains("..")
        && !name.contains("@{")
        && !name.chars().any(forbidden)
        && name.split('/').all(part_is_valid)
}

/// Returns whether `text` is a whole object id: 40 hexadecimal digits, or 64 in a SHA-256 repository.
pub(crate) fn is_object_id(text: &str) -> bool {
    let digits = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    digits && matches!(text.len(), 40 | 64) && text.bytes().any(|byte| byte != b'0')
}

/// Returns the part of a reference that names a session. An id may end as no reference may; `=` is in no id.
pub(crate) fn session_part(session: &str) -> String {
    let end = if session.ends_with('.') || session.ends_with(".lock") { "=" } else { "" };
    format!("{session}{end}")
}

/// Returns `word` quoted for a shell, so that a person can paste it.
pub(crate) fn shell_word(word: &str) -> String {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.' | b'=' | b'+' | b',');
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_git_accepts_are_branches() {
        for good in ["main", "feature/x", "v1.2", "a@b", "ü", "$(id)", "a'b", "x-lock", "HEAD"] {
            assert!(is_valid_branch(good), "`{good}`");
        }
        let long = "x".repeat(201);
        for bad in [
            "",
            "/",
            "a//b",
            "/a",
            "a/",
            "..",
            "a/../b",
            "a..b",
            ".a",
            "a/.b",
            "a.",
            "a.lock",
            "a.lock/b",
            "a b",
            "a~1",
            "a^",
            "a:b",
            "a?",
            "a*",
            "a[",
            "a\\b",
            "a@{1}",
            "@",
            "-a",
            "a\x1b[2J",
            "a\nb",
            "a\x7f",
            "a\u{202e}b",
            &long,
        ] {
            assert!(!is_valid_branch(bad), "`{bad:?}`");
        }
    }

    #[test]
    fn object_id_is_whole_and_lower_case() {
        assert!(is_object_id(&"a1".repeat(20)) && is_object_id(&"0f".repeat(32)));
        for bad in ["", "abc", &"g1".repeat(20), &"A1".repeat(20), &"00".repeat(20), &"a1".repeat(21)] {
            assert!(!is_object_id(bad), "`{bad}`");
        }
    }

    #[test]
    fn words_for_a_shell_are_quoted() {
        assert_eq!(shell_word("refs/viv/s-1/heads/main"), "refs/viv/s-1/heads/main");
        assert_eq!(shell_word("refs/viv/s/heads/$(id)"), "'refs/viv/s/heads/$(id)'");
        assert_eq!(shell_word("a'b"), "'a'\\''b'");
        assert_eq!((session_part("s.lock"), session_part("s")), ("s.lock=".to_owned(), "s".to_owned()));
    }
}
