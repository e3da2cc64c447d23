//! Text with `${name}` holes. `$${` stands for a literal `${`.

use serde_json::Value;

use super::pattern::Captures;

/// A piece of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    Literal(&'a str),
    Name(&'a str),
}

/// Splits a template. What looks like a hole but is none stays literal.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if let Some((name, after)) = hole(rest) {
            rest = after;
            return Some(Piece::Name(name));
        }
        if let Some(after) = rest.strip_prefix("$${") {
            rest = after;
            return Some(Piece::Literal("${"));
        }
        let literal_end = rest.char_indices().skip(1).map(|(at, _)| at).find(|at| starts_special(&rest[*at..]));
        let (literal, after) = rest.split_at(literal_end.unwrap_or(rest.len()));
        rest = after;
        Some(Piece::Literal(literal))
    })
}

/// The names of the holes.
pub(super) fn names(text: &str) -> impl Iterator<Item = &str> {
    pieces(text).filter_map(|piece| match piece {
        Piece::Name(name) => Some(name),
        Piece::Literal(_) => None,
    })
}

/// Fills the holes.
pub(super) fn fill(text: &str, captures: &Captures) -> String {
    pieces(text)
        .map(|piece| match piece {
            Piece::Literal(literal) => literal,
            Piece::Name(name) => captures.get(name).map_or("", String::as_str),
        })
        .collect()
}

/// Fills the holes of every text inside `value`.
pub(super) fn fill_value(value: &Value, captures: &Captures) -> Value {
    match value {
        Value::String(text) => Value::String(fill(text, captures)),
        Value::Array(items) => items.iter().map(|item| fill_value(item, captures)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| (name.clone(), fill_value(field, captures))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn starts_special(text: &str) -> bool {
    text.starts_with("$${") || hole(text).is_some()
}

fn hole(text: &str) -> Option<(&str, &str)> {
    let (name, after) = text.strip_prefix("${")?.split_once('}')?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    is_name.then_some((name, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_filled_and_the_rest_is_left_alone() {
        let captures = Captures::from([("who".to_owned(), "you".to_owned())]);
        let check = |text: &str, expected: &str| assert_eq!(fill(text, &captures), expected);
        check("hi ${who}, ${who}!", "hi you, you!");
        check("$${who} ${HOME} ${who", "${who} ${HOME} ${who");
        check("$ {} é${who}", "$ {} éyou");
        check("", "");
    }
}
