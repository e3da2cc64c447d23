//! A policy made of what a session was refused.
//!
//! It is for a person to read and choose from: an agent that wants a host on the list needs only to ask for it.
//! What the agent wrote stands in comments in a form that cannot end them, and every entry is held against the
//! evaluator, so that nothing is proposed that would be refused again.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ::policy::{Action, BaseLayer, CeilingLayer, EffectivePolicy, PolicyError, PolicySource, effective};
use protocol::EgressConnection;
use serde::Serialize;

/// Different requests to one host, above which the host itself is proposed.
const REQUESTS: usize = 8;

/// One thing that was refused, and what would allow it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ProposedRule {
    /// The entry of `net.allowlist`; none where no policy can allow it.
    pub(crate) entry: Option<String>,
    /// The host, as it was asked for.
    pub(crate) host: String,
    /// The port.
    pub(crate) port: u16,
    /// How it was asked for: `CONNECT`, `GET /path`.
    pub(crate) requests: Vec<String>,
    /// How often.
    pub(crate) count: u64,
    /// The rule that refused it; where no policy can allow it, the one that always will.
    pub(crate) rule: String,
}

/// What held for a session, in the words of a policy.
#[derive(Debug, Default)]
pub(crate) struct PriorAccess {
    /// What it could reach.
    pub(crate) allowed: Vec<String>,
    /// Where its TLS was opened, without which no request there is seen.
    pub(crate) intercepted: Vec<String>,
}

/// What a session was refused, host by host.
#[derive(Debug, Default)]
pub(crate) struct RefusedConnections {
    /// Apart from the others: what the proxy refused by its form, which no rule of a policy is about.
    hosts: BTreeMap<(String, u16, bool), RefusedHost>,
}

#[derive(Debug, Default)]
struct RefusedHost {
    requests: BTreeMap<(String, Option<String>), u64>,
    rule: String,
}

impl RefusedConnections {
    /// Takes one record of a refusal.
    pub(crate) fn add(&mut self, connection: &EgressConnection) {
        let ill_formed = connection.rule.ends_with("(built-in)");
        let host = self.hosts.entry((connection.host.clone(), connection.port, ill_formed)).or_default();
        let request = (connection.method.clone().unwrap_or_default(), connection.path.clone());
        *host.requests.entry(request).or_default() += connection.count.unwrap_or(1);
        host.rule.clone_from(&connection.rule);
    }

    /// What would allow it, as far as `ceiling` lets anything.
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
                // A path that no rule may name is allowed by the host alone, or not at all.
                let mut entries = one.into_iter().chain([whole]).filter(|_| !ill_formed);
                let entry = entries.find(|entry| allows(ceiling, entry, &action));
                let requests = group.iter().map(|((method, path), _)| shown(method, path.as_deref())).collect();
                let count = group.iter().map(|(_, count)| **count).sum();
                let last = || refused.rule.clone();
                let lasting = || lasting(ceiling, &action).filter(|_| !ill_formed).unwrap_or_else(last);
                let rule = if entry.is_some() { last() } else { lasting() };
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

/// The rule that refuses `action` whatever is listed.
fn lasting(ceiling: &CeilingLayer, action: &Action) -> Option<String> {
    let policy = compiled(ceiling, "version: 1\nnet: {enabled: true, allowlist: [\"*:*\"]}\n").ok()?;
    let decision = policy.decide(action);
    (!decision.is_allowed()).then(|| decision.rule.to_string())
}

fn compiled(ceiling: &CeilingLayer, text: &str) -> Result<EffectivePolicy, PolicyError> {
    Ok(effective(ceiling, &BaseLayer::read(&PolicySource::new("proposal", text))?, &[]))
}

/// A policy of one entry. What the policy's own reader takes has no quotes and no escapes.
fn net_section(entry: &str) -> String {
    format!("version: 1\nnet:\n  enabled: true\n  allowlist:\n    - {entry:?}\n")
}

/// The policy as text: what was allowed, then what was refused, each with how often and how it was asked for.
pub(crate) fn text(session: &str, before: &PriorAccess, proposals: &[ProposedRule]) -> String {
    let mut text =
        format!("# What session {} was refused, as a policy that would have allowed it.\n", comment(session));
    text += "# It is made of what the agent asked for, so read each entry and keep what you mean to allow. `net:` belongs\n";
    text += "# into the policy of the session: on its own it shows no file, calls no model and lets no tool pass.\n";
    let possible: Vec<&ProposedRule> = proposals.iter().filter(|proposed| proposed.entry.is_some()).collect();
    if possible.is_empty() {
        text += "# Nothing was refused that a policy can allow.\nversion: 1\n";
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
        let _ = writeln!(text, "    # refused {}: {}", times(proposed.count), requests(proposed));
        let _ = writeln!(text, "    - {:?}", proposed.entry.as_deref().unwrap_or_default());
    }
    for proposed in proposals.iter().filter(|proposed| proposed.entry.is_none()) {
        let ProposedRule { host, port, count, rule, .. } = proposed;
        let _ = writeln!(
            text,
            "# no policy can allow {}:{port}, refused {}: {}",
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

/// What an agent wrote, on one line of a comment.
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
    fn what_was_refused_is_allowed_by_what_is_proposed_and_nothing_else_is() {
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
    fn many_requests_to_a_host_make_one_entry() {
        let path = |number: u32| denied("b.example.com", 80, "GET", Some(&format!("/{number}")));
        let (text, _) = check(&(0..9).map(path).collect::<Vec<_>>());
        assert!(text.contains("- \"b.example.com:80\"") && text.contains("and 1 more"), "{text}");
    }

    #[test]
    fn an_agent_cannot_write_the_policy_by_what_it_asks_for() {
        let hosts = ["x\n    - \"*:443\"", "*", "*.com", "a\"\n  denylist: []\n#", "a.example.com:443/**\u{7}"];
        for host in hosts {
            let (text, policy) =
                check(&[denied(host, 443, "CONNECT", None), denied("a.b", 80, "GET\n", Some("/\n- x"))]);
            assert!(!policy.decide(&Action::net("evil.example.com:443").unwrap()).is_allowed(), "{text}");
            assert!(text.lines().all(|line| line.starts_with(['#', ' ', 'v', 'n'])), "{text}");
        }
    }
}
