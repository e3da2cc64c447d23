//! Pagination of lists with a cursor.
//!
//! A cursor is a position in the order of the list. So no item is repeated or skipped if the list changes between pages.

use protocol::ProblemCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::ApiError;
use crate::wire::at_least_one;

/// The query of any list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Most items to return, at least 1; all items if absent.
    #[serde(default, deserialize_with = "at_least_one")]
    #[param(minimum = 1)]
    pub(crate) limit: Option<u64>,
    /// `nextCursor` of the previous page.
    pub(crate) cursor: Option<String>,
}

impl ListQuery {
    /// Returns the limit.
    pub(crate) fn limit(&self) -> usize {
        self.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
    }
}

/// Returns the requested page of `all` and the cursor of the next page. `key` orders the list and must be unique.
pub(crate) fn paginate<T>(
    mut all: Vec<T>,
    query: &ListQuery,
    key: impl Fn(&T) -> String,
) -> Result<(Vec<T>, Option<String>), ApiError> {
    if query.limit.is_none() && query.cursor.is_none() {
        return Ok((all, None));
    }
    let start = query.cursor.as_deref().map(decode_cursor).transpose()?;
    all.sort_by_cached_key(&key);
    all.retain(|item| start.as_ref().is_none_or(|start| key(item) > *start));
    let has_more = all.len() > query.limit();
    all.truncate(query.limit());
    let last = all.last().map(&key).or(start).filter(|_| has_more);
    Ok((all, last.map(|last| encode_cursor(&last))))
}

/// Returns a key for `text` that orders numbers in it by value.
pub(crate) fn natural_order(text: &str) -> String {
    let mut ordered = String::with_capacity(text.len() + 20);
    let mut digits = String::new();
    for letter in text.chars().chain(['\0']) {
        if letter.is_ascii_digit() {
            digits.push(letter);
            continue;
        }
        if !digits.is_empty() {
            ordered.extend(std::iter::repeat_n('0', 20_usize.saturating_sub(digits.len())));
            ordered.push_str(&digits);
            digits.clear();
        }
        ordered.push(letter);
    }
    ordered
}

/// Encodes a key as an opaque cursor that needs no quoting in a URL.
fn encode_cursor(key: &str) -> String {
    key.bytes().fold("k".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

fn decode_cursor(cursor: &str) -> Result<String, ApiError> {
    let refused = || ApiError::new(ProblemCode::InvalidRequest, "invalid `cursor`");
    let digits = cursor.strip_prefix('k').filter(|digits| {
        let plain = digits.bytes().all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit));
        plain && digits.len() % 2 == 0
    });
    let pairs = digits.ok_or_else(refused)?.as_bytes().chunks(2);
    let byte = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = pairs.map(byte).collect();
    String::from_utf8(bytes.ok_or_else(refused)?).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(all: &[&str], limit: u64, cursor: Option<String>) -> (Vec<String>, Option<String>) {
        let all = all.iter().map(|item| (*item).to_owned()).collect();
        paginate(all, &ListQuery { limit: Some(limit), cursor }, |item| natural_order(item)).unwrap()
    }

    #[test]
    fn next_page_continues_after_changes_of_the_list() {
        let (first, next) = page(&["per_1_1", "per_1_10", "per_1_2", "per_1_9"], 2, None);
        assert_eq!(first, ["per_1_1", "per_1_2"]);
        // The item at the cursor is gone, and an item of the first page is back.
        let (second, next) = page(&["per_1_1", "per_1_10", "per_1_9", "per_1_11"], 2, next);
        assert_eq!(second, ["per_1_9", "per_1_10"]);
        let (third, next) = page(&["per_1_1", "per_1_10", "per_1_9", "per_1_11"], 2, next);
        assert_eq!((third, next), (vec!["per_1_11".to_owned()], None));
    }

    #[test]
    fn invalid_cursor_is_refused() {
        for bad in ["", "7", "k7", "kzz", "k+1", "kff", "ké"] {
            let query = ListQuery { limit: None, cursor: Some(bad.to_owned()) };
            assert!(paginate(vec![0], &query, ToString::to_string).is_err(), "{bad}");
        }
    }
}
