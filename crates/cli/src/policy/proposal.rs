//! A suggested policy that allows the connections a session was denied.
//!
//! A person must review it, because an agent can put a host on the list by connecting to it. Text from the agent is
//! escaped in comments. Every entry is tested with the policy evaluator, so nothing is suggested that would be denied
//! again.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ::policy::{Action, BaseLayer, CeilingLayer, EffectivePolicy, PolicyError, PolicySource, effective};
use protocol::EgressConnection;
use serde::Serialize;

/// Maximum number of different requests to a host that are suggested one by one; above it, the whole host is suggested.
const REQUESTS: usize = 8;

/// A denied connection and the rule that would allow it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ProposedRule {
    /// Entry of `net.allowlist`; `None` if no policy can allow the connection.
    pub(crate) entry: Option<String>,
    /// Requested host.
    pub(crate) host: String,
    /// The port.
    pub(crate) port: u16,
    /// Requests, such as `CONNECT` or `GET /path`.
    pub(crate) requests: Vec<String>,
    /// Number of attempts.
    pub(crate) count: u64,
    /// Rule that denied it; if no policy can allow it, the rule that always denies it.
    pub(crate) rule: String,
}

/// Network access that a session had, as policy entries.
#[derive(Debug, Default)]
pub(crate) struct PriorAccess {
    /// Allowed hosts.
    pub(crate) allowed: Vec<String>,
    /// Hosts with intercepted TLS; only there requests are visible.
    pub(crate) intercepted: Vec<String>,
}

/// Denied connections of a session, by host.
#[derive(Debug, Default)]
pub(crate) struct RefusedConnections {
    /// By host, port, and whether the proxy rejected the request as malformed, which no policy rule can allow.
    hosts: BTreeMap<(String, u16, bool), RefusedHost>,
}

#[derive(Debug, Default)]
struct RefusedHost {
    requests: BTreeMap<(String, Option<String>), u64>,
    rule: String,
}

impl RefusedConnections {
    /// Adds one denied connection.
    pub(crate) fn add(&mut self, connection: &EgressConnection) {
        let ill_formed = connection.rule.ends_with("(built-in)");
        let host = self.hosts.entry((connection.host.clone(), connection.port, ill_formed)).or_default();
        let request = (connection.method.clone().unwrap_or_default(), connection.path.clone());
        *host.requests.entry(request).or_default() += connection.count.unwrap_or(1);
        host.rule.clone_from(&connection.rule);
    }

    /// Returns the suggested entries that are possible under `ceiling`.
    pub(crate) fn proposals(&self, ceiling: &CeilingLayer) -> Vec<ProposedRule> {
        let mut all = Vec::new();
        for ((host, port, ill_formed), refused) in &self.hosts {
            let seen = refused.requests.keys().all(|(_, path)| path.is_some());
            let narrow = seen && refused.requests.len() <= REQUESTS;
            let groups: Vec<Vec<_>> = if narrow {
                refused.requests.iter().map(|request| vec![request]).collect()
            } else {
                vec![refused.requests.iter().collect()]
            };
            for group in groups {
                let ((method, path), _) = group[0];
                let whole = format!("{host}:{port}");
                let one = path.as_ref().filter(|_| narrow).map(|path| format!("{method} {whole}{path}"));
                let action = match (&one, path) {
                    (Some(_), Some(path)) => {
                        Action::Http { host: host.clone(), port: *port, method: method.clone(), path: path.clone() }
                    }
                    _ => Action::Net { host: host.clone(), port: *port },
                };
                // Some paths cannot be written in a rule; then only the whole host can be suggested.
                let mut entries = one.into_iter().chain([whole]).filter(|_| !ill_formed);
                let entry = entries.find(|entry| allows(ceiling, entry, &action));
                let requests = group.iter().map(|((method, path), _)| shown(method, path.as_deref())).collect();
                let count = group.iter().map(|(_, count)| **count).sum();
                let last = || refused.rule.clone();
                let permanent = || permanent_denial(ceiling, &action).filter(|_| !ill_formed).unwrap_or_else(last);
                let rule = if entry.is_some() { last() } else { permanent() };
                all.push(ProposedRule { entry, host: host.clone(), port: *port, requests, count, rule });
            }
        }
        all
    }
}

fn shown(method: &str, path: Option<&str>) -> String {
    path.map_or_else(|| method.to_owned(), |path| format!("{method} {path}"))
}

fn allows(ceiling: &CeilingLayer, entry: &str, action: &Action) -> bool {
    let text = net_section(entry);
    compiled(ceiling, &text).is_ok_and(|policy| policy.decide(action).is_allowed())
}

/// Returns the rule that denies `action` under every allow-list.
fn permanent_denial(ceiling: &CeilingLayer, action: &Action) -> Option<String> {
    let policy = compiled(ceiling, "version: 1\nnet: {enabled: true, allowlist: [\"*:*\"]}\n").ok()?;
    let decision = policy.decide(action);
    (!decision.is_allowed()).then(|| decision.rule.to_string())
}

fn compiled(ceiling: &CeilingLayer, text: &str) -> Result<EffectivePolicy, PolicyError> {
    Ok(effective(ceiling, &BaseLayer::read(&PolicySource::new("proposal", text))?, &[]))
}

/// Returns a policy with one entry. Valid entries contain neither quotes nor escapes.
fn net_section(entry: &str) -> String {
    format!("version: 1\nnet:\n  enabled: true\n  allowlist:\n    - {entry:?}\n")
}

/// Renders the policy: the allowed entries, then the suggested ones with their count and requests in a comment.
pub(crate) fn text(session: &str, before: &PriorAccess, proposals: &[ProposedRule]) -> String {
    let mut text =
        format!("# Suggested policy: allows the connections that session {} was denied.\n", comment(session));
    text += "# The entries come from the agent's requests: review each one and keep only what you want to allow.\n";
    text += "# Copy `net:` into the policy of the session: on its own, this file allows no files, models or tools.\n";
    let possible: Vec<&ProposedRule> = proposals.iter().filter(|proposed| proposed.entry.is_some()).collect();
    if possible.is_empty() {
        text += "# No denied connection can be allowed by a policy.\nversion: 1\n";
    } else {
        text += "version: 1\nnet:\n  enabled: true\n";
        if !before.intercepted.is_empty() {
            let _ = writeln!(text, "  intercept: {:?}", before.intercepted);
        }
        text += "  allowlist:\n";
        if !before.allowed.is_empty() {
            text += "    # allowed before\n";
        }
        for entry in &before.allowed {
            let _ = writeln!(text, "    - {entry:?}");
        }
    }
    for proposed in possible {
        let _ = writeln!(text, "    # denied {}: {}", times(proposed.count), requests(proposed));
        let _ = writeln!(text, "    - {:?}", proposed.entry.as_deref().unwrap_or_default());
    }
    for proposed in proposals.iter().filter(|proposed| proposed.entry.is_none()) {
        let ProposedRule { host, port, count, rule, .. } = proposed;
        let _ = writeln!(
            text,
            "# no policy can allow {}:{port}, denied {}: {}",
            comment(host),
            times(*count),
            comment(rule)
        );
    }
    text
}

fn requests(proposed: &ProposedRule) -> String {
    let shown: Vec<String> = proposed.requests.iter().take(REQUESTS).map(|request| comment(request)).collect();
    let more = proposed.requests.len().saturating_sub(REQUESTS);
    shown.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// Escapes text from the agent for one line of a comment.
fn comment(text: &str) -> String {
    let plain = |letter: char| match letter {
        '"' | '\'' => letter.to_string(),
        other => other.escape_default().to_string(),
    };
    text.chars().take(200).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(host: &str, port: u16, method: &str, path: Option<&str>) -> EgressConnection {
        let (host, method, path) = (host.to_owned(), Some(method.to_owned()), path.map(str::to_owned));
        EgressConnection {
            host,
            port,
            method,
            path,
            rule: "net.enabled: false (p.yaml:3)".into(),
            ..EgressConnection::default()
        }
    }

    #[track_caller]
    fn check(connections: &[EgressConnection]) -> (String, EffectivePolicy) {
        let ceiling = CeilingLayer::built_in().unwrap();
        let mut refused = RefusedConnections::default();
        for connection in connections {
            refused.add(connection);
        }
        let before = PriorAccess {
            allowed: vec!["kept.example.com:443".to_owned()],
            intercepted: vec!["api.example.com:443".to_owned()],
        };
        let text = text("s1", &before, &refused.proposals(&ceiling));
        let policy = compiled(&ceiling, &text).unwrap_or_else(|error| panic!("{text}: {error}"));
        (text, policy)
    }

    #[test]
    fn the_suggested_policy_allows_denied_connections_and_nothing_else() {
        let again = EgressConnection { count: Some(4), ..denied("a.example.com", 443, "CONNECT", None) };
        let (text, policy) = check(&[
            denied("a.example.com", 443, "CONNECT", None),
            again,
            denied("b.example.com", 80, "GET", Some("/files/x")),
            denied("b.example.com", 80, "GET", Some("/a/../b")),
            denied("api.openai.com", 443, "CONNECT", None),
            denied("api.example.com", 443, "GET", Some("/v1/x")),
        ]);
        let allowed = |action: &Action| policy.decide(action).is_allowed();
        assert!(
            allowed(&Action::net("a.example.com:443").unwrap()) && allowed(&Action::net("kept.example.com").unwrap())
        );
        assert!(allowed(&Action::http("GET", "http://b.example.com/files/x").unwrap()));
        assert!(!allowed(&Action::net("api.openai.com:443").unwrap()));
        assert!(allowed(&Action::http("GET", "https://api.example.com/v1/x").unwrap()));
        assert!(!allowed(&Action::http("GET", "https://api.example.com/v2").unwrap()));
        insta::assert_snapshot!(text);
    }

    #[test]
    fn many_requests_to_a_host_are_suggested_as_one_entry() {
        let path = |number: u32| denied("b.example.com", 80, "GET", Some(&format!("/{number}")));
        let (text, _) = check(&(0..9).map(path).collect::<Vec<_>>());
        assert!(text.contains("- \"b.example.com:80\"") && text.contains("and 1 more"), "{text}");
    }

    #[test]
    fn request_text_cannot_inject_policy_rules() {
        let hosts = ["x\n    - \"*:443\"", "*", "*.com", "a\"\n  denylist: []\n#", "a.example.com:443/**\u{7}"];
        for host in hosts {
            let (text, policy) =
                check(&[denied(host, 443, "CONNECT", None), denied("a.b", 80, "GET\n", Some("/\n- x"))]);
            assert!(!policy.decide(&Action::net("evil.example.com:443").unwrap()).is_allowed(), "{text}");
            assert!(text.lines().all(|line| line.starts_with(['#', ' ', 'v', 'n'])), "{text}");
        }
    }
}
