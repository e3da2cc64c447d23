//! Templates: text with `${name}` placeholders. `$${` is a literal `${`.

use serde_json::Value;

use super::pattern::Captures;

/// A piece of a template: literal text or the name of a placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TemplatePiece<'a> {
    Literal(&'a str),
    Name(&'a str),
}

/// Splits a template into pieces. Text such as `${HOME}` that is not a valid placeholder stays literal.
pub(super) fn split(text: &str) -> impl Iterator<Item = TemplatePiece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if let Some((name, after)) = split_placeholder(rest) {
            rest = after;
            return Some(TemplatePiece::Name(name));
        }
        if let Some(after) = rest.strip_prefix("$${") {
            rest = after;
            return Some(TemplatePiece::Literal("${"));
        }
        let literal_end = rest.char_indices().skip(1).map(|(at, _)| at).find(|at| starts_special(&rest[*at..]));
        let (literal, after) = rest.split_at(literal_end.unwrap_or(rest.len()));
        rest = after;
        Some(TemplatePiece::Literal(literal))
    })
}

/// Returns the names of the placeholders.
pub(super) fn placeholder_names(text: &str) -> impl Iterator<Item = &str> {
    split(text).filter_map(|piece| match piece {
        TemplatePiece::Name(name) => Some(name),
        TemplatePiece::Literal(_) => None,
    })
}

/// Replaces every placeholder by its captured text; unknown names become empty.
pub(super) fn fill(text: &str, captures: &Captures) -> String {
    split(text)
        .map(|piece| match piece {
            TemplatePiece::Literal(literal) => literal,
            TemplatePiece::Name(name) => captures.get(name).map_or("", String::as_str),
        })
        .collect()
}

/// Fills the placeholders of every string inside `value`.
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
    text.starts_with("$${") || split_placeholder(text).is_some()
}

fn split_placeholder(text: &str) -> Option<(&str, &str)> {
    let (name, after) = text.strip_prefix("${")?.split_once('}')?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    is_name.then_some((name, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_and_other_text_is_unchanged() {
        let captures = Captures::from([("who".to_owned(), "you".to_owned())]);
        let check = |text: &str, expected: &str| assert_eq!(fill(text, &captures), expected);
        check("hi ${who}, ${who}!", "hi you, you!");
        check("$${who} ${HOME} ${who", "${who} ${HOME} ${who");
        check("$ {} é${who}", "$ {} éyou");
        check("", "");
    }
}
