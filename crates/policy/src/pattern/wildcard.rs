//! Texts in which `*` matches any text, including an empty one.

/// Returns whether `pattern` matches `text`. A `*` in the text is matched only by a `*`. The same function therefore
/// decides whether one pattern covers another.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            retry = Some((p, t));
            p += 1;
        } else if pattern.get(p) == text.get(t) {
            p += 1;
            t += 1;
        } else if let Some((star, seen)) = retry {
            // Let the last `*` match one byte more; earlier ones never need to change.
            retry = Some((star, seen + 1));
            p = star + 1;
            t = seen + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// Replaces runs of `*` by one `*`, so that equal languages have equal texts.
pub(crate) fn simplify(pattern: &str) -> String {
    let mut simple = String::with_capacity(pattern.len());
    for c in pattern.chars() {
        if c != '*' || !simple.ends_with('*') {
            simple.push(c);
        }
    }
    simple
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{matches, simplify};

    /// The definition of matching; exponential but obviously correct.
    fn matches_slowly(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|skip| matches_slowly(rest, &text[skip..])),
            Some((byte, rest)) => text.first() == Some(byte) && matches_slowly(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn matching_equals_the_definition(pattern in "[ab*]{0,7}", text in "[ab]{0,8}") {
            prop_assert_eq!(matches(&pattern, &text), matches_slowly(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn covered_patterns_match_less(wide in "[ab*]{0,6}", narrow in "[ab*]{0,6}", text in "[ab]{0,8}") {
            if matches(&wide, &narrow) && matches(&narrow, &text) {
                prop_assert!(matches(&wide, &text));
            }
        }

        #[test]
        fn patterns_that_cover_each_other_are_equal(left in "[ab*]{0,6}", right in "[ab*]{0,6}") {
            let (left, right) = (simplify(&left), simplify(&right));
            prop_assert_eq!(matches(&left, &right) && matches(&right, &left), left == right);
        }
    }
}
