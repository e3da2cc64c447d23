//! Placeholders for keys: texts of the same shape that contain nothing of the key.

/// The repeated text of a placeholder.
const FILLER_WORD: &str = "vivplaceholder";
/// The most letters of a prefix word such as `ghp` or `sk`.
const MAX_PREFIX_WORD: usize = 10;

/// Returns a placeholder for `key`: of the same length, with the same prefix (`ghp_`, `sk-ant-`), with dots at the same
/// positions, and of digits only if the key is.
///
/// A program that checks the form of a key accepts it, and a person sees that it is a placeholder.
pub(crate) fn placeholder(key: &str) -> String {
    let prefix = prefix(key);
    let rest = &key[prefix.len()..];
    let consists_of =
        |allowed: fn(char) -> bool| rest.chars().all(|letter| allowed(letter) || matches!(letter, '-' | '.'));
    // In a key of digits, a hyphen separates groups, as in a UUID, so it is kept.
    let (filler, keeps_hyphens) = if consists_of(|letter| letter.is_ascii_digit()) {
        ("0", true)
    } else if consists_of(|letter| letter.is_ascii_hexdigit()) {
        ("0123456789abcdef", true)
    } else {
        (FILLER_WORD, false)
    };
    let mut filler = filler.chars().cycle();
    let replaced = rest.chars().map(|letter| match letter {
        '.' => '.',
        '-' if keeps_hyphens => '-',
        _ => filler.next().unwrap_or('0'),
    });
    prefix.chars().chain(replaced).collect()
}

/// Returns the prefix words of a key, each with its `_` or `-`; never more than half of the key.
fn prefix(key: &str) -> &str {
    let mut end = 0;
    while let Some(length) = key[end..].find(['_', '-']) {
        let word = &key[end..end + length];
        let is_word =
            !word.is_empty() && word.len() <= MAX_PREFIX_WORD && word.bytes().all(|byte| byte.is_ascii_lowercase());
        if !is_word || (end + length + 1) * 2 > key.len() {
            break;
        }
        end += length + 1;
    }
    &key[..end]
}

#[cfg(test)]
mod tests {
    use super::placeholder;

    #[test]
    fn placeholder_has_the_shape_of_the_key_and_nothing_of_it() {
        for (key, expected) in [
            ("ghp_A1b2C3d4E5f6G7h8", "ghp_vivplaceholdervi"),
            ("sk-ant-Zx9Zx9Zx9Zx9Zx9", "sk-ant-vivplaceholderv"),
            ("123456", "000000"),
            ("9f8e7d6c-1111-4222-8333-abcdefabcdef", "01234567-89ab-cdef-0123-456789abcdef"),
            ("eyJh.eyJz.c2ln", "vivp.lace.hold"),
            ("hunter_2", "vivplace"),
            ("", ""),
        ] {
            assert_eq!(placeholder(key), expected, "{key}");
        }
    }
}
