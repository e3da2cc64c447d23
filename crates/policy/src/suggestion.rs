//! "Did you mean …": the known word nearest to a mistyped one.

/// Returns the candidate with the smallest edit distance, if it is close enough to be a typing error.
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['_', '-'], "");
    let typed = plain(word);
    let allowed = (typed.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (edits(&typed, &plain(candidate)), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the Levenshtein distance.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, left) in from.chars().enumerate() {
        let mut diagonal = index;
        row[0] = index + 1;
        for (column, right) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::closest;

    #[test]
    fn typing_errors_are_recognised_and_other_words_are_not() {
        let keys = ["enabled", "allowlist", "denylist"];
        assert_eq!(closest("allow_list", keys), Some("allowlist"));
        assert_eq!(closest("enable", keys), Some("enabled"));
        assert_eq!(closest("alowlist", keys), Some("allowlist"));
        assert_eq!(closest("budget", keys), None);
    }
}
