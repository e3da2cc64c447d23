//! The evaluator: one place that answers, for `viv policy test` and for enforcement alike.

use std::net::IpAddr;
use std::path::Path;

use crate::decision::{Action, Decision, Verdict};
use crate::document::WorkspaceMode;
use crate::pattern::{
    Endpoint, EndpointPattern, Host, HostError, Location, Pattern as _, Reach, ReachPattern, Request, RequestPath,
    SHELL, ToolCall, locate,
};
use crate::policy::{CompiledPolicy, FsRules, NetRules};
use crate::rule::{LayerName, RuleRef, WithRule};

/// Where a program named without a slash is looked for inside.
const SEARCH_PATH: [&str; 6] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"];

impl CompiledPolicy {
    /// Whether `action` may be done, and by which rule.
    pub fn decide(&self, action: &Action) -> Decision {
        match action {
            Action::Net { host, port } => self.net.decide(host, *port, Asked::Tunnel),
            Action::Raw { host, port } => self.net.decide(host, *port, Asked::Anything),
            Action::Http { host, port, method, path } => {
                let request = Request { method: method.clone(), path: RequestPath::read(path) };
                self.net.decide(host, *port, Asked::Request(request))
            }
            Action::Https { host, port, method, path } => {
                let seen = self.net.opens(host, *port);
                let request = Request { method: method.clone(), path: RequestPath::read(path) };
                self.net.decide(host, *port, if seen { Asked::Request(request) } else { Asked::Tunnel })
            }
            Action::Read(path) => self.fs.decide_read(path),
            Action::Write(path) => self.fs.decide_write(path),
            Action::Exec(argv) => self.decide_exec(argv),
            Action::Tool { name, argument } => self.decide_tool(name, argument),
            Action::Model(name) => self.decide_model(name),
        }
    }

    /// Whether an address that a name was resolved to may be dialled. Asked after `NetPolicy` was allowed.
    pub fn decide_address(&self, address: IpAddr, port: u16) -> Decision {
        let endpoint = Endpoint { host: Host::from(address), port };
        match self.net.denylist.find(|denied| denied.matches(&endpoint)) {
            Some(entry) => Decision::deny(entry.rule.clone()),
            None => Decision::allow(RuleRef::built_in("the address is a public one")),
        }
    }

    fn decide_exec(&self, argv: &[String]) -> Decision {
        let Some(program) = argv.first() else {
            return Decision::deny(RuleRef::built_in("there is no command"));
        };
        let visible = if program.contains('/') {
            self.fs.decide_read(Path::new(program))
        } else {
            let places = SEARCH_PATH.iter().map(|directory| self.fs.decide_read(&Path::new(directory).join(program)));
            best(places).unwrap_or_else(|| Decision::deny(RuleRef::built_in("there is no search path")))
        };
        // A line given as one word is a shell line; its program is judged by the tool gate alone.
        let shell_line = argv.len() == 1 && program.contains(char::is_whitespace);
        if !shell_line && !visible.is_allowed() {
            return visible;
        }
        self.decide_tool(SHELL, &argv.join(" "))
    }

    fn decide_tool(&self, name: &str, argument: &str) -> Decision {
        match self.tools.decide(&ToolCall::new(name, argument)) {
            Some((Verdict::Deny, rule)) => {
                Decision::deny(rule).with_help(format!("add `{name}` under `tools.allow` or `tools.ask`"))
            }
            Some((allowed, rule)) => Decision { allowed, rule, help: None },
            None => Decision::allow(RuleRef::no_opinion()),
        }
    }

    fn decide_model(&self, name: &str) -> Decision {
        match self.models.decide(name) {
            Ok(entry) => Decision::allow(entry.map_or_else(RuleRef::no_opinion, |entry| entry.rule.clone())),
            Err(list) => Decision::deny(list.rule().clone()).with_help(format!("add `{name}` under `models.allow`")),
        }
    }
}

/// The most permissive of several answers.
fn best(decisions: impl Iterator<Item = Decision>) -> Option<Decision> {
    decisions.reduce(|best, next| if next.allowed > best.allowed { next } else { best })
}

/// What is asked of a host.
enum Asked {
    /// TLS that nobody looks into.
    Tunnel,
    /// Whatever it may be.
    Anything,
    /// One request.
    Request(Request),
}

impl NetRules {
    fn decide(&self, host: &str, port: u16, asked: Asked) -> Decision {
        let raw = matches!(asked, Asked::Anything);
        let request = if let Asked::Request(request) = asked { Some(request) } else { None };
        let endpoint = match self.admit(host, port) {
            Ok(endpoint) => endpoint,
            Err(denied) => return denied,
        };
        if let Some(entry) = self.intercepting(&endpoint).filter(|_| request.is_none()) {
            return Decision::deny(entry.rule.clone()).with_help(
                "its TLS is opened and each request judged: speak HTTPS through the proxy, and trust its certificate",
            );
        }
        let reach = Reach { endpoint, request, raw };
        match self.allowlist.decide(&reach) {
            Ok(entry) => self.allowed(entry),
            Err(list) => Decision::deny(list.rule().clone()).with_help(self.missing(&reach)),
        }
    }

    /// Whether some request to a host whose TLS is opened may pass; each of them is then decided on by itself.
    pub(crate) fn decide_opening(&self, host: &str, port: u16) -> Decision {
        let endpoint = match self.admit(host, port) {
            Ok(endpoint) => endpoint,
            Err(denied) => return denied,
        };
        match self.allowlist.find(|pattern| pattern.names(&endpoint)) {
            Ok(entry) => self.allowed(entry),
            Err(list) => {
                Decision::deny(list.rule().clone()).with_help(format!("add \"{endpoint}\" under `net.allowlist`"))
            }
        }
    }

    /// Whether a name may be known: every list names it on some port, and nothing denies it on all of them.
    pub(crate) fn decide_name(&self, name: &str) -> Decision {
        let host = match name.parse::<Host>() {
            Ok(host @ Host::Name(_)) => host,
            Ok(Host::Address(_)) => return Decision::deny(RuleRef::built_in("an address is no name")),
            Err(error) => return Decision::deny(RuleRef::built_in(error.to_string())),
        };
        if let Some(entry) = self.denylist.find(|denied| denied.denies_all_of(&host)) {
            return Decision::deny(entry.rule.clone());
        }
        if !self.enabled.value {
            return Decision::deny(self.enabled.rule.clone());
        }
        match self.allowlist.find(|pattern| pattern.names_host(&host)) {
            Ok(entry) => self.allowed(entry),
            Err(list) => Decision::deny(list.rule().clone()).with_help(format!("add \"{host}\" under `net.allowlist`")),
        }
    }

    /// The entry by which TLS to `endpoint` is opened.
    pub(crate) fn intercepting(&self, endpoint: &Endpoint) -> Option<&WithRule<EndpointPattern>> {
        self.intercept.find(|pattern| pattern.matches(endpoint))
    }

    fn opens(&self, host: &str, port: u16) -> bool {
        host.parse().is_ok_and(|host| self.intercepting(&Endpoint { host, port }).is_some())
    }

    fn allowed(&self, entry: Option<&WithRule<ReachPattern>>) -> Decision {
        Decision::allow(entry.map_or_else(|| self.enabled.rule.clone(), |entry| entry.rule.clone()))
    }

    /// The host, if it can be read, nothing denies it by name, and there is a network at all.
    fn admit(&self, host: &str, port: u16) -> Result<Endpoint, Decision> {
        let host: Host =
            host.parse().map_err(|error: HostError| Decision::deny(RuleRef::built_in(error.to_string())))?;
        if port == 0 {
            return Err(Decision::deny(RuleRef::built_in("a port is a number from 1 to 65535")));
        }
        let endpoint = Endpoint { host, port };
        if let Some(entry) = self.denylist.find(|denied| denied.matches(&endpoint)) {
            let denied = Decision::deny(entry.rule.clone());
            return Err(match entry.rule.layer {
                LayerName::Ceiling => denied.with_help(never(&endpoint.host, &entry.rule)),
                _ => denied,
            });
        }
        if !self.enabled.value {
            return Err(Decision::deny(self.enabled.rule.clone())
                .with_help(format!("set `net.enabled: true` and add \"{endpoint}\" under `net.allowlist`")));
        }
        Ok(endpoint)
    }

    /// What would have to stand under `net.allowlist`.
    fn missing(&self, Reach { endpoint, request, raw }: &Reach) -> String {
        let named = self.allowlist.entries().any(|entry| entry.value.names(endpoint));
        if *raw {
            return format!("add \"raw {endpoint}\" under `net.allowlist`");
        }
        match request {
            Some(Request { path: Err(why), .. }) if named => {
                format!("{why}: write the path plainly, or add \"{endpoint}\" under `net.allowlist`")
            }
            Some(Request { method, .. }) if named => {
                format!("add the path, or \"{method} {endpoint}\", under `net.allowlist`")
            }
            None if named => format!(
                "methods and paths are not seen in a tunnel: add \"{endpoint}\" under `net.intercept`, or under `net.allowlist`"
            ),
            _ => format!("add \"{endpoint}\" under `net.allowlist`"),
        }
    }
}

impl FsRules {
    fn decide_read(&self, path: &Path) -> Decision {
        match locate(path) {
            Err(why) => Decision::deny(RuleRef::built_in(why)),
            Ok(Location::Workspace(inside)) => match self.deny_read.find(|glob| glob.matches(&inside)) {
                Some(entry) => Decision::deny(entry.rule.clone()),
                None => Decision::allow(self.workspace.rule.clone()),
            },
            Ok(Location::Elsewhere(path)) => self.decide_read_elsewhere(&path),
        }
    }

    fn decide_read_elsewhere(&self, path: &Path) -> Decision {
        if let Some(rule) = own(path, &["/tmp", "/deps"]) {
            return Decision::allow(rule);
        }
        let read = match self.read.decide(path) {
            Ok(entry) => {
                return Decision::allow(entry.map_or_else(RuleRef::no_opinion, |entry| entry.rule.clone()));
            }
            Err(list) => list.rule().clone(),
        };
        match self.write.decide(path) {
            Ok(Some(entry)) => Decision::allow(entry.rule.clone()),
            Ok(None) => Decision::allow(RuleRef::no_opinion()),
            Err(_) => Decision::deny(read).with_help(format!("add `{}` under `fs.read`", path.display())),
        }
    }

    fn decide_write(&self, path: &Path) -> Decision {
        let inside = match locate(path) {
            Err(why) => return Decision::deny(RuleRef::built_in(why)),
            Ok(Location::Elsewhere(path)) => return self.decide_write_elsewhere(&path),
            Ok(Location::Workspace(inside)) => inside,
        };
        if self.workspace.value == WorkspaceMode::Readonly {
            return Decision::deny(self.workspace.rule.clone()).with_help("set `fs.workspace: overlay`");
        }
        // What is hidden cannot be changed either: a file made in its place would overwrite it when applied.
        let denied = self.deny_write.find(|glob| glob.matches(&inside));
        match denied.or_else(|| self.deny_read.find(|glob| glob.matches(&inside))) {
            Some(entry) => Decision::deny(entry.rule.clone()),
            None => Decision::allow(self.workspace.rule.clone()),
        }
    }

    fn decide_write_elsewhere(&self, path: &Path) -> Decision {
        if let Some(rule) = own(path, &["/tmp"]) {
            return Decision::allow(rule);
        }
        match self.write.decide(path) {
            Ok(entry) => Decision::allow(entry.map_or_else(RuleRef::no_opinion, |entry| entry.rule.clone())),
            Err(list) => {
                Decision::deny(list.rule().clone()).with_help(format!("add `{}` under `fs.write`", path.display()))
            }
        }
    }
}

/// Directories the sandbox makes for itself: nothing of the host is in them.
fn own(path: &Path, directories: &[&str]) -> Option<RuleRef> {
    let directory = directories.iter().find(|directory| path.starts_with(directory))?;
    Some(RuleRef::built_in(format!("`{directory}` is the sandbox's own")))
}

/// Last parts of names that mean this machine, its neighbours, or what hands out its credentials.
const NEARBY: [&str; 5] = ["localhost", "local", "internal", "instance-data", "goog"];

/// What to say to whom a ceiling's `rule` denies `host`.
fn never(host: &Host, rule: &RuleRef) -> &'static str {
    let is_nearby = match host {
        Host::Address(_) => true,
        Host::Name(name) => name.rsplit('.').next().is_some_and(|last| NEARBY.contains(&last)),
    };
    match (is_nearby, rule.file == RuleRef::BUILT_IN) {
        (_, false) => "no policy can allow it",
        (true, _) => "no policy can allow it: this machine, its neighbours and metadata services are never called",
        (false, _) => "no policy can allow it; models are called through the gateway",
    }
}
