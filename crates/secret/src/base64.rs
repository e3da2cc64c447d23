//! The texts by which a secret can be recognised in Base64.
//!
//! Base64 encodes three bytes as four characters, so the text depends on the position of the secret modulo three. Each
//! of the three texts has only the characters that depend on nothing but the secret.

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// A shorter secret is not searched for: its text could occur by chance.
const MIN_SECRET_BYTES: usize = 8;
/// How `+` and `/` are written: plain, as in JSON, and as in URLs.
const SPELLINGS: [(&str, &str); 4] = [("+", "/"), ("+", "\\/"), ("%2B", "%2F"), ("%2b", "%2f")];

/// Returns the texts of `secret` at all positions: in the URL-safe alphabet, and in the standard alphabet in all
/// spellings. Empty if the secret is short.
pub(crate) fn texts(secret: &[u8]) -> Vec<Vec<u8>> {
    if secret.len() < MIN_SECRET_BYTES {
        return Vec::new();
    }
    let mut texts = Vec::new();
    for position in 0..3 {
        let standard = text(secret, position, STANDARD);
        let spelled = SPELLINGS.map(|(plus, slash)| standard.replace('/', slash).replace('+', plus));
        texts.extend(spelled.into_iter().chain([text(secret, position, URL_SAFE)]).map(String::into_bytes));
    }
    texts.sort();
    texts.dedup();
    texts
}

/// Returns the characters that encode only bits of `secret`, if it begins `position` bytes after a multiple of three.
fn text(secret: &[u8], position: usize, alphabet: &[u8; 64]) -> String {
    let bit = |index: usize| {
        let byte = index / 8;
        let byte = if byte < position { 0 } else { secret[byte - position] };
        usize::from(byte >> (7 - index % 8) & 1)
    };
    let (first, end) = ((position * 8).div_ceil(6), (position + secret.len()) * 8 / 6);
    let character = |at: usize| alphabet[(at * 6..at * 6 + 6).fold(0, |number, index| number * 2 + bit(index))];
    (first..end).map(|at| char::from(character(at))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_the_part_of_base64_that_only_the_secret_decides() {
        // `printf 'sk-canary?>'`, with one and two bytes before it, through `base64`.
        assert_eq!(text(b"sk-canary?>", 0, STANDARD), "c2stY2FuYXJ5Pz");
        assert_eq!(text(b"sk-canary?>", 1, STANDARD), "NrLWNhbmFyeT8+");
        assert_eq!(text(b"sk-canary?>", 2, STANDARD), "zay1jYW5hcnk/P");
        assert_eq!(text(b"sk-canary?>", 1, URL_SAFE), "NrLWNhbmFyeT8-");
        assert!(texts(b"short").is_empty());
    }
}
