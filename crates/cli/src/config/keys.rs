//! The keys of `viv.toml` as a table: type, default and meaning of each.
//!
//! `viv config`, the document `docs/config.md` and the suggestions for misspelled keys read this table. A test compares it
//! with the structs of `file.rs`, so that no key is missing here.

/// The type of a key's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueType {
    /// Any text.
    Text,
    /// Path of a file or directory.
    Path,
    /// Bytes with a unit, such as `512MiB`.
    Size,
    /// Time with a unit, such as `30s`.
    Duration,
    /// Dollars as text, such as `20.00`.
    Dollars,
    /// Whole number.
    Integer,
    /// Number.
    Number,
    /// `true` or `false`.
    Flag,
    /// Texts, separated by commas, or a TOML array.
    List,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A credential. It is never shown, and read from stdin only.
    Secret,
    /// A TOML inline table with all keys of a section.
    Table,
}

impl ValueType {
    /// Returns the type for documents.
    pub(crate) fn words(self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Path => "path".to_owned(),
            Self::Size => "size".to_owned(),
            Self::Duration => "duration".to_owned(),
            Self::Dollars => "dollars".to_owned(),
            Self::Integer => "integer".to_owned(),
            Self::Number => "number".to_owned(),
            Self::Flag => "`true` or `false`".to_owned(),
            Self::List => "list of texts".to_owned(),
            Self::Word(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
            Self::Secret => "secret".to_owned(),
            Self::Table => "table".to_owned(),
        }
    }
}

/// One key of `viv.toml`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConfigKey {
    /// Dotted path. A segment `NAME` stands for any name.
    pub(crate) path: &'static str,
    pub(crate) value: ValueType,
    /// Default in words; empty if the key is unset by default.
    pub(crate) default: &'static str,
    pub(crate) meaning: &'static str,
}

const fn key(path: &'static str, value: ValueType, default: &'static str, meaning: &'static str) -> ConfigKey {
    ConfigKey { path, value, default, meaning }
}

const KINDS: &[&str] = &["anthropic", "openai", "gemini", "openai-compatible", "litellm", "scripted", "replay"];

/// All keys, in the order of the document.
pub(crate) const KEYS: &[ConfigKey] = &[
    key("account", ValueType::Text, "each session is its own account", "Account that pays for sessions."),
    key("user", ValueType::Text, "", "Person whose sessions these are."),
    key("dependencies", ValueType::Path, "", "Directory that every session sees at `/deps`, read-only."),
    key(
        "model.upstream",
        ValueType::Text,
        "the scripted model",
        "Upstream of sessions: the name of one of `upstreams`.",
    ),
    key("model.script", ValueType::Path, "the built-in script", "Script for the scripted model."),
    key(
        "agents.npm_cache",
        ValueType::Path,
        "npm's own cache",
        "Download cache of npm for the installation of agents.",
    ),
    key("agents.NAME.upstream", ValueType::Text, "`model.upstream`", "Upstream for sessions of this agent."),
    key("agents.NAME.model", ValueType::Text, "the agent's own choice", "Model for sessions of this agent."),
    key(
        "terminal.detach_prefix",
        ValueType::Text,
        "`ctrl-\\\\`",
        "Key that begins a command to `viv` in an interactive session; with `d` it detaches.",
    ),
    key(
        "terminal.notify",
        ValueType::Word(&["message", "bell", "none"]),
        "`message`",
        "How the terminal is told that an agent waits: a desktop notification (OSC 9) and the bell, the bell, or nothing.",
    ),
    key("upstreams.NAME", ValueType::Table, "", "One upstream, as an inline table."),
    key("upstreams.NAME.kind", ValueType::Word(KINDS), "", "API of the upstream; required."),
    key("upstreams.NAME.base_url", ValueType::Text, "the vendor's own", "Base URL."),
    key("upstreams.NAME.key", ValueType::Secret, "", "API key."),
    key("upstreams.NAME.key_file", ValueType::Path, "", "File that contains only the key."),
    key("upstreams.NAME.key_command", ValueType::Text, "", "Shell command that prints the key."),
    key("upstreams.NAME.key_env", ValueType::Text, "", "Environment variable with the key."),
    key(
        "upstreams.NAME.key_found",
        ValueType::Flag,
        "`false`",
        "Use the key that `viv credentials` finds for this kind.",
    ),
    key("upstreams.NAME.aliases.NAME", ValueType::Text, "", "The upstream's name for the requested model NAME."),
    key("upstreams.NAME.model", ValueType::Text, "", "Model for every name that is not an alias."),
    key("upstreams.NAME.session", ValueType::Text, "", "Recorded session for kind `replay`."),
    key("upstreams.NAME.script", ValueType::Path, "", "Script for kind `scripted`."),
    key("upstreams.NAME.roots", ValueType::Path, "", "PEM file of additional root certificates."),
    key("upstreams.NAME.retries", ValueType::Integer, "`2`", "Retries of a failed connection."),
    key("upstreams.NAME.connect_timeout", ValueType::Duration, "`10s`", "Time limit for the connection."),
    key(
        "upstreams.NAME.first_byte_timeout",
        ValueType::Duration,
        "`5m`",
        "Time limit from the request to the first byte of the answer.",
    ),
    key("upstreams.NAME.idle_timeout", ValueType::Duration, "`2m`", "Time limit between two pieces of the answer."),
    key(
        "prices.NAME",
        ValueType::Table,
        "",
        "Price of the model NAME, as an inline table; replaces the built-in price.",
    ),
    key(
        "prices.NAME.input",
        ValueType::Number,
        "",
        "Dollars for a million prompt tokens that were not read from a cache; required.",
    ),
    key("prices.NAME.output", ValueType::Number, "", "Dollars for a million output tokens; required."),
    key(
        "prices.NAME.cache_read",
        ValueType::Number,
        "`input`",
        "Dollars for a million prompt tokens read from the cache.",
    ),
    key(
        "prices.NAME.cache_write",
        ValueType::Number,
        "`input`",
        "Dollars for a million prompt tokens written to the cache.",
    ),
    key(
        "prices.NAME.cache_write_1h",
        ValueType::Number,
        "`cache_write`",
        "Dollars for a million prompt tokens written to the one-hour cache.",
    ),
    key("prices.NAME.max_output_tokens", ValueType::Integer, "", "Maximum output tokens of one answer."),
    key(
        "prices.NAME.reasoning",
        ValueType::Flag,
        "`true`",
        "Whether the model bills reasoning that its answer does not show.",
    ),
    key(
        "ledger.durability",
        ValueType::Word(&["full", "lease", "normal"]),
        "`full`",
        "Failures that a ledger entry survives.",
    ),
    key("budgets.day_usd", ValueType::Dollars, "", "Budget for all calls of a UTC day."),
    key("budgets.account_usd", ValueType::Dollars, "", "Budget for all calls of an account."),
    key("budgets.account_day_usd", ValueType::Dollars, "", "Budget for all calls of an account in a UTC day."),
    key("budgets.session_requests_per_minute", ValueType::Integer, "", "Calls of a session in a minute."),
    key(
        "limits.in_flight",
        ValueType::Size,
        "see `viv doctor`",
        "Bytes of bodies and buffers in memory, for all connections of a session.",
    ),
    key("limits.body_idle", ValueType::Duration, "see `viv doctor`", "Time without a byte of a request body."),
    key("limits.body_total", ValueType::Duration, "see `viv doctor`", "Time for a whole request body."),
    key(
        "limits.connections",
        ValueType::Integer,
        "see `viv doctor`",
        "Connections of a session at each of its two listeners.",
    ),
    key(
        "limits.pending_requests",
        ValueType::Integer,
        "see `viv doctor`",
        "Permission requests and questions of a session that wait for an answer.",
    ),
    key("limits.journal", ValueType::Size, "see `viv doctor`", "Bytes of a session's journal."),
    key("limits.bodies", ValueType::Size, "see `viv doctor`", "Bytes of a session's stored bodies."),
    key("limits.key_journal", ValueType::Size, "see `viv doctor`", "Bytes of the journal of a gateway key."),
    key(
        "limits.free_space",
        ValueType::Size,
        "see `viv doctor`",
        "Least free space of the data directory's file system.",
    ),
    key("limits.sessions", ValueType::Integer, "see `viv doctor`", "Open sessions of this process."),
    key(
        "limits.sessions_per_token",
        ValueType::Integer,
        "see `viv doctor`",
        "Open sessions that one access token created.",
    ),
    key(
        "record.content",
        ValueType::Word(&["full", "redacted", "none"]),
        "`full`",
        "Recorded part of the bodies of model calls.",
    ),
    key("record.redact", ValueType::List, "", "Regular expressions of secrets, in addition to the built-in ones."),
    key("record.zstd", ValueType::Flag, "`false`", "Whether recorded bodies are compressed."),
    key("replay.ignore", ValueType::List, "", "Regular expressions of text that differs between two runs."),
    key("sandbox.backend", ValueType::Word(&["jail", "podman", "docker"]), "the first that works", "Sandbox backend."),
    key("sandbox.image", ValueType::Text, "", "Image of the containers."),
    key("sandbox.entrypoint", ValueType::List, "", "Command that runs once in each new container."),
    key("sandbox.runtime", ValueType::Text, "", "Name of the OCI runtime."),
    key("sandbox.socket", ValueType::Path, "", "Socket of the container engine."),
    key("sandbox.pull", ValueType::Flag, "`false`", "Whether a missing image is pulled."),
    key("egress.roots", ValueType::Path, "", "PEM file of additional root certificates for intercepted TLS."),
    key(
        "ask.permission_timeout",
        ValueType::Duration,
        "`15m`",
        "Deadline for a permission; unanswered requests are denied.",
    ),
    key("ask.question_timeout", ValueType::Duration, "`1h`", "Deadline for a question."),
    key("sessions.drain", ValueType::Duration, "`60s`", "Most time for turns to end when `viv serve` stops."),
    key("sessions.idle_stop", ValueType::Duration, "never", "Time after which an agent without a turn is stopped."),
    key("sessions.ttl", ValueType::Duration, "never", "Time from its creation until a session ends."),
    key("credentials.NAME.key", ValueType::Secret, "", "Credential that `net.inject` of a policy can name."),
    key("credentials.NAME.key_file", ValueType::Path, "", "File that contains only the credential."),
    key("credentials.NAME.key_command", ValueType::Text, "", "Shell command that prints the credential."),
    key("credentials.NAME.key_env", ValueType::Text, "", "Environment variable with the credential."),
    key(
        "credentials.NAME.variable",
        ValueType::Text,
        "the name in capitals",
        "Variable in the sandbox with a placeholder.",
    ),
];

/// A key of the table with the names that were typed for its `NAME` segments.
#[derive(Debug, Clone)]
pub(crate) struct NamedKey {
    pub(crate) key: ConfigKey,
    /// Segments of the path in the file.
    pub(crate) segments: Vec<String>,
}

/// Finds the key with these segments. A name may contain dots: `prices.gpt-4.1.input` names the model `gpt-4.1`.
pub(crate) fn find(segments: &[String]) -> Option<NamedKey> {
    // A key inside a section comes before the section with a name that contains dots.
    let is_table = |key: &&ConfigKey| key.value == ValueType::Table;
    let inner = KEYS.iter().filter(|key| !is_table(key));
    inner.chain(KEYS.iter().filter(is_table)).find_map(|key| {
        let pattern: Vec<&str> = key.path.split('.').collect();
        matched(&pattern, segments).map(|segments| NamedKey { key: *key, segments })
    })
}

/// Returns the segments joined so that they fit the pattern.
fn matched(pattern: &[&str], segments: &[String]) -> Option<Vec<String>> {
    let Some((first, rest)) = pattern.split_first() else { return segments.is_empty().then(Vec::new) };
    if *first != "NAME" {
        let (segment, others) = segments.split_first().filter(|(segment, _)| segment == first)?;
        let tail = matched(rest, others)?;
        return Some(std::iter::once(segment.clone()).chain(tail).collect());
    }
    (1..=segments.len()).find_map(|count| {
        let tail = matched(rest, &segments[count..])?;
        Some(std::iter::once(segments[..count].join(".")).chain(tail).collect())
    })
}

/// Returns the known path that is most like the typed one, with the typed names.
pub(crate) fn closest(segments: &[String]) -> Option<String> {
    let candidates: Vec<String> = KEYS.iter().filter_map(|key| filled(key.path, segments)).collect();
    policy::closest(&segments.join("."), candidates.iter().map(String::as_str)).map(str::to_owned)
}

/// Returns `path` with its `NAME` segments replaced by the typed ones at the same places.
fn filled(path: &str, segments: &[String]) -> Option<String> {
    let pattern: Vec<&str> = path.split('.').collect();
    if pattern.len() != segments.len() {
        return (!pattern.contains(&"NAME")).then(|| path.to_owned());
    }
    let filled = pattern.iter().zip(segments).map(|(part, typed)| if *part == "NAME" { typed } else { *part });
    Some(filled.collect::<Vec<&str>>().join("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigFile;

    fn segments(path: &str) -> Vec<String> {
        path.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn names_may_contain_dots() {
        assert_eq!(find(&segments("prices.gpt-4.1.input")).unwrap().segments, ["prices", "gpt-4.1", "input"]);
        assert_eq!(find(&segments("agents.npm_cache")).unwrap().key.path, "agents.npm_cache");
        assert_eq!(find(&segments("agents.claude.model")).unwrap().key.path, "agents.NAME.model");
        assert!(find(&segments("modle.upstream")).is_none());
    }

    #[test]
    fn a_misspelled_key_is_corrected() {
        assert_eq!(closest(&segments("modle.upstream")).as_deref(), Some("model.upstream"));
        assert_eq!(closest(&segments("upstreams.mine.base_ulr")).as_deref(), Some("upstreams.mine.base_url"));
        assert_eq!(closest(&segments("sandbox.bakend")).as_deref(), Some("sandbox.backend"));
    }

    /// Returns the keys that the parser expects in the section with this header.
    fn expected(header: &str) -> Vec<String> {
        let error = toml::from_str::<ConfigFile>(&format!("{header}\nnot_a_key = 1\n")).unwrap_err();
        let message = error.message().to_owned();
        let (_, list) = message.split_once("expected").unwrap_or_else(|| panic!("{header}: {message}"));
        list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_table_has_every_key_of_the_structs() {
        let names: &[(&str, &str)] = &[
            ("", ""),
            ("[model]", "model"),
            ("[agents.claude]", "agents.NAME"),
            ("[upstreams.x]\nkind = \"openai\"", "upstreams.NAME"),
            ("[prices.x]\ninput = 1.0\noutput = 1.0", "prices.NAME"),
            ("[ledger]", "ledger"),
            ("[budgets]", "budgets"),
            ("[limits]", "limits"),
            ("[sessions]", "sessions"),
            ("[record]", "record"),
            ("[replay]", "replay"),
            ("[sandbox]", "sandbox"),
            ("[egress]", "egress"),
            ("[ask]", "ask"),
            ("[credentials.x]", "credentials.NAME"),
        ];
        for (header, section) in names {
            for name in expected(header) {
                let path = if section.is_empty() { name.clone() } else { format!("{section}.{name}") };
                let is_known = KEYS.iter().any(|key| key.path == path || key.path.starts_with(&format!("{path}.")));
                assert!(is_known, "`{path}` of viv.toml is not in the table");
            }
        }
    }

    /// The document is this table: run with `VIV_WRITE_DOCS=1` to write it again.
    #[test]
    fn the_document_has_the_table() {
        let rows = KEYS
            .iter()
            .map(|key| format!("| `{}` | {} | {} | {} |\n", key.path, key.value.words(), key.default, key.meaning));
        let table =
            format!("| key | type | default | meaning |\n| --- | --- | --- | --- |\n{}", rows.collect::<String>());
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
        let document = std::fs::read_to_string(&path).unwrap();
        let (before, rest) = document.split_once("<!-- keys -->\n").unwrap();
        let (found, after) = rest.split_once("<!-- end -->").unwrap();
        if found != table && std::env::var_os("VIV_WRITE_DOCS").is_some() {
            std::fs::write(path, format!("{before}<!-- keys -->\n{table}<!-- end -->{after}")).unwrap();
        } else {
            assert_eq!(found, table, "docs/config.md is out of date");
        }
    }

    #[test]
    fn every_key_of_the_table_is_accepted() {
        for key in KEYS.iter().filter(|key| key.value != ValueType::Table) {
            let value = match key.value {
                ValueType::Size => "\"1MiB\"",
                ValueType::Duration => "\"5s\"",
                ValueType::Dollars => "\"1.00\"",
                ValueType::Integer => "3",
                ValueType::Number => "1.5",
                ValueType::Flag => "true",
                ValueType::List => "[\"a\"]",
                ValueType::Word(words) => &format!("\"{}\"", words[0]),
                _ => "\"text\"",
            };
            let mut text = format!("{} = {value}\n", key.path.replacen("NAME", "claude", 1));
            for (required, value) in [("kind", "\"openai\""), ("input", "1.0"), ("output", "1.0")] {
                let section = match required {
                    "kind" => "upstreams",
                    _ => "prices",
                };
                if key.path.starts_with(section) && !key.path.ends_with(&format!(".{required}")) {
                    text += &format!("{section}.claude.{required} = {value}\n");
                }
            }
            let parsed = toml::from_str::<ConfigFile>(&text);
            assert!(parsed.is_ok(), "{text}: {parsed:?}");
        }
    }
}
