//! Parses YAML into a `PolicyDocument`, and explains parser errors in terms of a policy.

use serde_saphyr::{DuplicateKeyPolicy, Error, Location, MergeKeyPolicy};

use super::PolicyDocument;
use crate::finding::{PolicyError, PolicyFinding};
use crate::source::{PolicySource, SourcePosition};
use crate::suggestion::closest;

/// The largest policy text that is parsed.
const MAX_BYTES: usize = 256 * 1024;

impl PolicyDocument {
    /// Parses a policy text. Only the structure is checked here; `compile` checks the values.
    pub fn parse(source: &PolicySource) -> Result<Self, PolicyError> {
        let wrong = |finding: PolicyFinding| PolicyError::new(source, vec![finding]);
        if source.text().len() > MAX_BYTES {
            return Err(wrong(PolicyFinding::new(source, format!("the policy is larger than {MAX_BYTES} bytes"))));
        }
        // The YAML parser rejects a file with only comments, which is an empty policy.
        if source.text().lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        let document: Self = serde_saphyr::from_str_with_options(source.text(), options())
            .map_err(|error| wrong(explain(source, &error)))?;
        match &document.version {
            Some(version) if version.value != "1" => Err(wrong(
                PolicyFinding::new(source, format!("unknown version `{}`", version.value))
                    .at(Some(version.position))
                    .labelled("only version 1 exists")
                    .with_help(Some("write `version: 1`".to_owned())),
            )),
            _ => Ok(document),
        }
    }
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        strict_booleans: true,
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            // List entries are compared with one another, so their number is limited.
            max_events: 10_000,
            max_nodes: 4_000,
            max_depth: 16,
            max_aliases: 64,
            max_anchors: 64,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 1_000,
            max_replay_stack_depth: 4,
            max_alias_expansions_per_anchor: 16,
        },
    }
}

fn explain(source: &PolicySource, error: &Error) -> PolicyFinding {
    let position = error.location().and_then(SourcePosition::of);
    let finding = |message: String| PolicyFinding::new(source, message).at(position);
    match error {
        Error::SerdeUnknownField { field, expected, .. } => finding(format!("unknown key `{field}`"))
            .labelled("unknown key")
            .with_help(Some(one_of("valid keys", field, expected))),
        Error::SerdeUnknownVariant { variant, expected, .. } => finding(format!("invalid value `{variant}`"))
            .labelled("invalid value")
            .with_help(Some(one_of("choices", variant, expected))),
        Error::DuplicateMappingKey { key, .. } => {
            let name = key.as_deref().map(|key| format!(" `{key}`")).unwrap_or_default();
            finding(format!("duplicate key{name}"))
                .labelled("second occurrence")
                .with_help(Some("remove one of them".to_owned()))
        }
        Error::InvalidBooleanStrict { location } => explain_boolean(source, *location),
        Error::MergeKeyNotAllowed { .. } => finding("merge keys (`<<`) are not supported in a policy".to_owned())
            .with_help(Some("write out the keys".to_owned())),
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => finding("aliases expand to too much text".to_owned())
            .labelled("expanded here")
            .with_help(Some("write out the values instead of using `*aliases`".to_owned())),
        Error::Unexpected { expected, .. } => finding(describe_expected(expected)),
        Error::ExternallyTaggedEnumExpectedScalarOrMapping { .. } => finding("expected a single word".to_owned()),
        Error::RecursiveReferencesRequireWeakTypes { .. } => finding("an alias cannot contain itself".to_owned()),
        Error::MultipleDocuments { .. } => finding("a policy must be a single YAML document".to_owned())
            .with_help(Some("remove `---` and the other document".to_owned())),
        Error::AliasError { error, .. } => explain(source, error),
        other => finding(plain_message(other)),
    }
}

/// YAML 1.1 reads `no` as a boolean; this parser does not. Suggests the boolean that was probably meant.
fn explain_boolean(source: &PolicySource, location: Location) -> PolicyFinding {
    let position = SourcePosition::of(location);
    let written = position
        .and_then(|position| source.text().get(position.offset..position.offset + position.length))
        .unwrap_or("");
    let meant = match written.trim_matches(['"', '\'']).to_lowercase().as_str() {
        "no" | "off" | "n" | "false" | "0" => Some("false"),
        "yes" | "on" | "y" | "true" | "1" => Some("true"),
        _ => None,
    };
    let help = meant.map_or_else(|| "write `true` or `false`".to_owned(), |meant| format!("write `{meant}`"));
    PolicyFinding::new(source, format!("`{written}` is not a boolean"))
        .at(position)
        .labelled("only `true` and `false` are")
        .with_help(Some(help))
}

fn describe_expected(expected: &str) -> String {
    match expected {
        "sequence start" => "expected a list, as in `[one, two]`".to_owned(),
        "mapping start" => "expected keys, as in `enabled: false`".to_owned(),
        "string scalar" => "expected a single value".to_owned(),
        other => format!("expected {other}"),
    }
}

fn one_of(what: &str, written: &str, expected: &[&'static str]) -> String {
    match closest(written, expected.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("{what}: {}", expected.join(", ")),
    }
}

/// Returns the parser's message without the position, which the snippet shows.
fn plain_message(error: &Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
