//! Lists by page: what comes behind a place in the order of the list, so that nothing is shown twice or left out when the
//! list grows or shrinks between two pages.

use protocol::ProblemCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::ApiError;
use crate::wire::signed;

/// What any list can be asked.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// At most this many; all of them when not given.
    #[serde(default, deserialize_with = "signed")]
    pub(crate) limit: Option<u64>,
    /// `nextCursor` of the page before.
    pub(crate) cursor: Option<String>,
}

impl ListQuery {
    /// How many are wanted.
    pub(crate) fn limit(&self) -> usize {
        self.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX).max(1)
    }
}

/// The page of `all` that is asked for, and the cursor of the next one. `key` orders the list, and is another for each.
pub(crate) fn cut<T>(
    mut all: Vec<T>,
    query: &ListQuery,
    key: impl Fn(&T) -> String,
) -> Result<(Vec<T>, Option<String>), ApiError> {
    if query.limit.is_none() && query.cursor.is_none() {
        return Ok((all, None));
    }
    let behind = query.cursor.as_deref().map(read).transpose()?;
    all.sort_by_cached_key(&key);
    all.retain(|item| behind.as_ref().is_none_or(|behind| key(item) > *behind));
    let goes_on = all.len() > query.limit();
    all.truncate(query.limit());
    // A page of nothing ends where it began.
    let last = all.last().map(&key).or(behind).filter(|_| goes_on);
    Ok((all, last.map(|last| written(&last))))
}

/// A text whose numbers are ordered as numbers.
pub(crate) fn in_order(text: &str) -> String {
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

/// A cursor has no meaning for who holds it, and needs no quoting in a query.
fn written(key: &str) -> String {
    key.bytes().fold("k".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

fn read(cursor: &str) -> Result<String, ApiError> {
    let refused = || ApiError::new(ProblemCode::InvalidRequest, "`cursor` is no place in the list");
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
        cut(all, &ListQuery { limit: Some(limit), cursor }, |item| in_order(item)).unwrap()
    }

    #[test]
    fn pages_go_on_where_they_ended_whatever_becomes_of_the_list() {
        let (first, next) = page(&["per_1_1", "per_1_10", "per_1_2", "per_1_9"], 2, None);
        assert_eq!(first, ["per_1_1", "per_1_2"]);
        // The one behind which it goes on is gone, and one that was shown is back.
        let (second, next) = page(&["per_1_1", "per_1_10", "per_1_9", "per_1_11"], 2, next);
        assert_eq!(second, ["per_1_9", "per_1_10"]);
        let (third, next) = page(&["per_1_1", "per_1_10", "per_1_9", "per_1_11"], 2, next);
        assert_eq!((third, next), (vec!["per_1_11".to_owned()], None));
    }

    #[test]
    fn a_page_has_one_at_least() {
        let (page, next) = page(&["a", "b"], 0, None);
        assert_eq!((page.len(), next.is_some()), (1, true));
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        for bad in ["", "7", "k7", "kzz", "k+1", "kff", "ké"] {
            let query = ListQuery { limit: None, cursor: Some(bad.to_owned()) };
            assert!(cut(vec![0], &query, ToString::to_string).is_err(), "{bad}");
        }
    }
}
