//! What stands for a key where the key itself must not be: of the same shape, and with nothing of it.

/// What a placeholder says, over and over.
const WORD: &str = "vivplaceholder";
/// Letters and digits that a word before `_` or `-` may have, to say what kind of key this is.
const KIND: usize = 10;

/// A text of the shape of `key`: as long, with the same beginning where that is a word that tells the kind of key
/// (`ghp_`, `sk-ant-`), of digits where that is of digits, and with dots where that has them. Who looks at the form of
/// a key alone takes it for one; who reads it sees what it is.
pub(crate) fn of(key: &str) -> String {
    let kind = kind(key);
    let rest = &key[kind.len()..];
    let only = |allowed: fn(char) -> bool| rest.chars().all(|letter| allowed(letter) || matches!(letter, '-' | '.'));
    // With only such letters, a hyphen parts a key as in a UUID, and is no letter of it.
    let (filler, keeps_hyphens) = if only(|letter| letter.is_ascii_digit()) {
        ("0", true)
    } else if only(|letter| letter.is_ascii_hexdigit()) {
        ("0123456789abcdef", true)
    } else {
        (WORD, false)
    };
    let mut filler = filler.chars().cycle();
    let stands_in = rest.chars().map(|letter| match letter {
        '.' => '.',
        '-' if keeps_hyphens => '-',
        _ => filler.next().unwrap_or('0'),
    });
    kind.chars().chain(stands_in).collect()
}

/// The words at the beginning that tell the kind, each with the mark behind it; never more than half of the key.
fn kind(key: &str) -> &str {
    let mut end = 0;
    while let Some(length) = key[end..].find(['_', '-']) {
        let word = &key[end..end + length];
        let is_word = !word.is_empty() && word.len() <= KIND && word.bytes().all(|byte| byte.is_ascii_lowercase());
        if !is_word || (end + length + 1) * 2 > key.len() {
            break;
        }
        end += length + 1;
    }
    &key[..end]
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn it_has_the_shape_of_the_key_and_nothing_of_it() {
        for (key, expected) in [
            ("ghp_A1b2C3d4E5f6G7h8", "ghp_vivplaceholdervi"),
            ("sk-ant-Zx9Zx9Zx9Zx9Zx9", "sk-ant-vivplaceholderv"),
            ("123456", "000000"),
            ("9f8e7d6c-1111-4222-8333-abcdefabcdef", "01234567-89ab-cdef-0123-456789abcdef"),
            ("eyJh.eyJz.c2ln", "vivp.lace.hold"),
            ("hunter_2", "vivplace"),
            ("", ""),
        ] {
            assert_eq!(of(key), expected, "{key}");
        }
    }
}
