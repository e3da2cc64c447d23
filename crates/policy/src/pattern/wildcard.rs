//! Texts in which `*` stands for any text, also none.

/// Whether `pattern` matches `text`. A `*` in the text is matched only by a `*`, which makes the same
/// function decide whether one pattern covers another: what a `*` of the narrower one stands for is
/// then always inside what a `*` of the wider one stands for.
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
            // Let the last `*` take one byte more; earlier ones never need to change.
            retry = Some((star, seen + 1));
            p = star + 1;
            t = seen + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// The pattern with runs of `*` made one, so that equal languages are equal texts.
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

    /// The definition, word for word; exponential, and right.
    fn matches_slowly(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|skip| matches_slowly(rest, &text[skip..])),
            Some((byte, rest)) => text.first() == Some(byte) && matches_slowly(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn matching_is_what_the_definition_says(pattern in "[ab*]{0,7}", text in "[ab]{0,8}") {
            prop_assert_eq!(matches(&pattern, &text), matches_slowly(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn what_is_covered_is_matched(wide in "[ab*]{0,6}", narrow in "[ab*]{0,6}", text in "[ab]{0,8}") {
            if matches(&wide, &narrow) && matches(&narrow, &text) {
                prop_assert!(matches(&wide, &text));
            }
        }

        #[test]
        fn patterns_that_cover_each_other_are_one(left in "[ab*]{0,6}", right in "[ab*]{0,6}") {
            let (left, right) = (simplify(&left), simplify(&right));
            prop_assert_eq!(matches(&left, &right) && matches(&right, &left), left == right);
        }
    }
}
