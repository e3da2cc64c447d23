//! YAML to `PolicyDocument`, and what the YAML reader complains about in our own words.

use serde_saphyr::{DuplicateKeyPolicy, Error, Location, MergeKeyPolicy};

use super::PolicyDocument;
use crate::finding::{PolicyError, PolicyFinding};
use crate::source::{PolicySource, SourcePosition};
use crate::suggest::closest;

/// A policy is a page of text; what is larger is an attack or a mistake.
const MAX_BYTES: usize = 256 * 1024;

impl PolicyDocument {
    /// Reads a policy text. Its structure is checked here; what its values mean, when it is compiled.
    pub fn parse(source: &PolicySource) -> Result<Self, PolicyError> {
        let wrong = |finding: PolicyFinding| PolicyError::new(source, vec![finding]);
        if source.text().len() > MAX_BYTES {
            return Err(wrong(PolicyFinding::new(source, format!("a policy is at most {MAX_BYTES} bytes long"))));
        }
        // A file of nothing but comments is an empty policy, which the YAML reader calls an unexpected end.
        if source.text().lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        let document: Self = serde_saphyr::from_str_with_options(source.text(), options())
            .map_err(|error| wrong(explain(source, &error)))?;
        match &document.version {
            Some(version) if version.value != "1" => Err(wrong(
                PolicyFinding::new(source, format!("version `{}` is not known", version.value))
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
            // Entries of a list are compared with one another, so their number is what costs.
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
    let place = error.location().and_then(SourcePosition::of);
    let finding = |message: String| PolicyFinding::new(source, message).at(place);
    match error {
        Error::SerdeUnknownField { field, expected, .. } => finding(format!("unknown key `{field}`"))
            .labelled("not a key here")
            .with_help(Some(one_of("keys here", field, expected))),
        Error::SerdeUnknownVariant { variant, expected, .. } => finding(format!("`{variant}` is not a choice here"))
            .labelled("not a choice")
            .with_help(Some(one_of("choices", variant, expected))),
        Error::DuplicateMappingKey { key, .. } => {
            let name = key.as_deref().map(|key| format!(" `{key}`")).unwrap_or_default();
            finding(format!("duplicate key{name}"))
                .labelled("written before")
                .with_help(Some("keep one of the two".to_owned()))
        }
        Error::InvalidBooleanStrict { location } => explain_boolean(source, *location),
        Error::MergeKeyNotAllowed { .. } => finding("merge keys (`<<`) are not read in a policy".to_owned())
            .with_help(Some("write the keys out: a policy is read line by line".to_owned())),
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            finding("the text unfolds to far more than it looks (an alias bomb)".to_owned())
                .labelled("unfolds here")
                .with_help(Some("write the values out instead of using `*aliases`".to_owned()))
        }
        Error::Unexpected { expected, .. } => finding(belongs_here(expected)),
        Error::ExternallyTaggedEnumExpectedScalarOrMapping { .. } => finding("one word belongs here".to_owned()),
        Error::RecursiveReferencesRequireWeakTypes { .. } => finding("an alias cannot stand inside itself".to_owned()),
        Error::MultipleDocuments { .. } => finding("a policy is one document".to_owned())
            .with_help(Some("remove the `---` and what is above or below it".to_owned())),
        Error::AliasError { error, .. } => explain(source, error),
        other => finding(plain_message(other)),
    }
}

/// `no` is a word, not a boolean: the reader must learn which one was meant.
fn explain_boolean(source: &PolicySource, location: Location) -> PolicyFinding {
    let place = SourcePosition::of(location);
    let written = place.and_then(|place| source.text().get(place.offset..place.offset + place.length)).unwrap_or("");
    let meant = match written.trim_matches(['"', '\'']).to_lowercase().as_str() {
        "no" | "off" | "n" | "false" | "0" => Some("false"),
        "yes" | "on" | "y" | "true" | "1" => Some("true"),
        _ => None,
    };
    let help = meant.map_or_else(|| "write `true` or `false`".to_owned(), |meant| format!("write `{meant}`"));
    PolicyFinding::new(source, format!("`{written}` is not a boolean"))
        .at(place)
        .labelled("only `true` and `false` are")
        .with_help(Some(help))
}

fn belongs_here(expected: &str) -> String {
    match expected {
        "sequence start" => "a list belongs here, as in `[one, two]`".to_owned(),
        "mapping start" => "keys belong here, as in `enabled: false`".to_owned(),
        "string scalar" => "a single value belongs here".to_owned(),
        other => format!("expected {other}"),
    }
}

fn one_of(what: &str, written: &str, expected: &[&'static str]) -> String {
    match closest(written, expected.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("{what}: {}", expected.join(", ")),
    }
}

/// The reader's own words, without the position it appends: the snippet shows that better.
fn plain_message(error: &Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
