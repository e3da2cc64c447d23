//! Folded names: the form in which a name is compared with rules.
//!
//! Some file systems ignore case, invisible characters, or trailing dots and spaces, so that `.GIT` or `.g<U+200C>it` opens
//! `.git`. A workspace may be copied to such a file system, so every spelling is judged like the name it opens there.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Returns the folded form of a path.
pub(crate) fn folded(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let ends_in_dot = bytes.ends_with(b".") || bytes.windows(2).any(|pair| pair == b"./");
    if !ends_in_dot && bytes.iter().all(|byte| is_folded(*byte)) {
        return path.to_owned();
    }
    path.iter().flat_map(|name| name.as_bytes().split(|byte| *byte == b'\\')).map(folded_name).collect()
}

/// Returns whether a byte is the same in the folded form, unless it is a dot at the end of a name.
fn is_folded(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'+' | b'@')
}

fn folded_name(name: &[u8]) -> PathBuf {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        // To upper case first: `ſ` and `K` (the Kelvin sign) have no lower case of their own.
        let shown = chunk.valid().chars().filter(|sign| !is_ignored(*sign));
        text.extend(shown.flat_map(char::to_uppercase).flat_map(char::to_lowercase));
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    // NTFS: the text after a colon names a stream of the file, and dots and spaces at the end are dropped.
    let text = text.split_once(':').map_or(text.as_str(), |(file, _)| file);
    let text = match text.trim_end_matches(['.', ' ']) {
        "" => text,
        trimmed => trimmed,
    };
    PathBuf::from(match text {
        // The short names that NTFS gives to files with a leading dot.
        "git~1" | "git~2" | "git~3" | "git~4" => ".git",
        "gitmod~1" | "gitmod~2" | "gitmod~3" | "gitmod~4" => ".gitmodules",
        "gitatt~1" | "gitatt~2" | "gitatt~3" | "gitatt~4" => ".gitattributes",
        other => other,
    })
}

/// Returns whether HFS+ ignores a character in names.
fn is_ignored(sign: char) -> bool {
    matches!(sign, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::folded;

    #[track_caller]
    fn check(path: &str, expected: &str) {
        assert_eq!(folded(Path::new(path)), Path::new(expected), "{path:?}");
    }

    #[test]
    fn every_spelling_of_a_name_is_folded_to_one() {
        for spelling in
            [".git", ".GIT", ".Git", ".g\u{200c}it", "\u{feff}.git", ".git.", ".git ", ".git . .", "GIT~1", "git~2"]
        {
            check(spelling, ".git");
            check(&format!("a/{spelling}/config"), "a/.git/config");
        }
        check(".git::$INDEX_ALLOCATION/config", ".git/config");
        check(".git\\config", ".git/config");
        check("\u{212a}ey/\u{17f}rc", "key/src");
        check("CLAUDE.md", "claude.md");
        check("src/main.rs", "src/main.rs");
        check("..", "..");
    }

    #[test]
    fn other_names_stay_apart() {
        for name in [".gitignore", "git", "digit~1", ".github/a", "a b.txt", "…"] {
            check(name, name);
        }
        assert_ne!(folded(Path::new("a\u{300}")), folded(Path::new("a")));
    }
}
