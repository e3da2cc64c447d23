//! The evaluator. `viv policy test` and enforcement use the same code.

use std::net::IpAddr;
use std::path::Path;

use crate::decision::{Action, Decision, Verdict};
use crate::document::WorkspaceMode;
use crate::pattern::{
    ConnectionAttempt, ConnectionPattern, Endpoint, EndpointPattern, Host, HostError, HttpRequest, PathLocation,
    Pattern as _, RequestPath, SHELL, ToolCall, locate,
};
use crate::policy::{CompiledPolicy, FsRules, NetRules};
use crate::rule::{LayerName, RuleRef, WithRule};

/// Directories inside the sandbox that are searched for a program without a slash.
const SEARCH_PATH: [&str; 6] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"];

impl CompiledPolicy {
    /// Decides `action` and returns the rule that decided.
    pub fn decide(&self, action: &Action) -> Decision {
        match action {
            Action::Net { host, port } => self.net.decide(host, *port, ConnectionKind::Tunnel),
            Action::Raw { host, port } => self.net.decide(host, *port, ConnectionKind::Raw),
            Action::Http { host, port, method, path } => {
                let request = HttpRequest { method: method.clone(), path: RequestPath::read(path) };
                self.net.decide(host, *port, ConnectionKind::Request(request))
            }
            Action::Https { host, port, method, path } => {
                let seen = self.net.opens(host, *port);
                let request = HttpRequest { method: method.clone(), path: RequestPath::read(path) };
                self.net.decide(
                    host,
                    *port,
                    if seen { ConnectionKind::Request(request) } else { ConnectionKind::Tunnel },
                )
            }
            Action::Read(path) => self.fs.decide_read(path),
            Action::Write(path) => self.fs.decide_write(path),
            Action::Exec(argv) => self.decide_exec(argv),
            Action::Tool { name, argument } => self.decide_tool(name, argument),
            Action::Model(name) => self.decide_model(name),
        }
    }

    /// Decides whether an address that a name resolved to can be dialled. Call this after the name was allowed.
    pub fn decide_address(&self, address: IpAddr, port: u16) -> Decision {
        let endpoint = Endpoint { host: Host::from(address), port };
        match self.net.denylist.find(|denied| denied.matches(&endpoint)) {
            Some(entry) => Decision::deny(entry.rule.clone()),
            None => Decision::allow(RuleRef::built_in("the address is public")),
        }
    }

    fn decide_exec(&self, argv: &[String]) -> Decision {
        let Some(program) = argv.first() else {
            return Decision::deny(RuleRef::built_in("the command is empty"));
        };
        let visible = if program.contains('/') {
            self.fs.decide_read(Path::new(program))
        } else {
            let decisions =
                SEARCH_PATH.iter().map(|directory| self.fs.decide_read(&Path::new(directory).join(program)));
            best(decisions).unwrap_or_else(|| Decision::deny(RuleRef::built_in("the search path is empty")))
        };
        // A command line in one argument is for a shell; only the tool rules apply to its program.
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

/// Returns the most permissive decision.
fn best(decisions: impl Iterator<Item = Decision>) -> Option<Decision> {
    decisions.reduce(|best, next| if next.allowed > best.allowed { next } else { best })
}

/// The kind of traffic that a connection carries.
enum ConnectionKind {
    /// TLS that the proxy does not decrypt.
    Tunnel,
    /// Any protocol.
    Raw,
    /// One request that the proxy can read.
    Request(HttpRequest),
}

impl NetRules {
    fn decide(&self, host: &str, port: u16, kind: ConnectionKind) -> Decision {
        let raw = matches!(kind, ConnectionKind::Raw);
        let request = if let ConnectionKind::Request(request) = kind { Some(request) } else { None };
        let endpoint = match self.parse_endpoint(host, port) {
            Ok(endpoint) => endpoint,
            Err(denied) => return denied,
        };
        if let Some(entry) = self.intercepting(&endpoint).filter(|_| request.is_none()) {
            return Decision::deny(entry.rule.clone()).with_help(
                "TLS to this host is intercepted: use HTTPS through the proxy, and trust the proxy's certificate",
            );
        }
        let reach = ConnectionAttempt { endpoint, request, raw, packages: self.packages.value };
        match self.allowlist.decide(&reach) {
            Ok(entry) => self.allowed(entry),
            Err(list) => Decision::deny(list.rule().clone()).with_help(self.allowlist_help(&reach)),
        }
    }

    /// Decides whether any request to an intercepted host can be allowed. Each request is then decided on its own.
    pub(crate) fn decide_intercepted_host(&self, host: &str, port: u16) -> Decision {
        let endpoint = match self.parse_endpoint(host, port) {
            Ok(endpoint) => endpoint,
            Err(denied) => return denied,
        };
        match self.allowlist.find(|pattern| self.is_in_force(pattern) && pattern.names_endpoint(&endpoint)) {
            Ok(entry) => self.allowed(entry),
            Err(list) => {
                Decision::deny(list.rule().clone()).with_help(format!("add \"{endpoint}\" under `net.allowlist`"))
            }
        }
    }

    /// Decides whether DNS answers `name`: every allow-list must name it on some port, and no rule may deny every port.
    pub(crate) fn decide_name(&self, name: &str) -> Decision {
        let host = match name.parse::<Host>() {
            Ok(host @ Host::Name(_)) => host,
            Ok(Host::Address(_)) => return Decision::deny(RuleRef::built_in("DNS does not answer addresses")),
            Err(error) => return Decision::deny(RuleRef::built_in(error.to_string())),
        };
        if let Some(entry) = self.denylist.find(|denied| denied.denies_every_port(&host)) {
            return Decision::deny(entry.rule.clone());
        }
        if !self.enabled.value {
            return Decision::deny(self.enabled.rule.clone());
        }
        match self.allowlist.find(|pattern| self.is_in_force(pattern) && pattern.names_host(&host)) {
            Ok(entry) => self.allowed(entry),
            Err(list) => Decision::deny(list.rule().clone()).with_help(format!("add \"{host}\" under `net.allowlist`")),
        }
    }

    /// Returns the entry that intercepts TLS to `endpoint`.
    pub(crate) fn intercepting(&self, endpoint: &Endpoint) -> Option<&WithRule<EndpointPattern>> {
        self.intercept.find(|pattern| pattern.matches(endpoint))
    }

    fn opens(&self, host: &str, port: u16) -> bool {
        host.parse().is_ok_and(|host| self.intercepting(&Endpoint { host, port }).is_some())
    }

    /// Returns whether an entry has an effect: entries of package registries depend on `net.packages`.
    fn is_in_force(&self, entry: &ConnectionPattern) -> bool {
        self.packages.value || !entry.is_registry()
    }

    fn allowed(&self, entry: Option<&WithRule<ConnectionPattern>>) -> Decision {
        Decision::allow(entry.map_or_else(|| self.enabled.rule.clone(), |entry| entry.rule.clone()))
    }

    /// Parses the host. Fails with a denial if the host is invalid or denied, or if the network is disabled.
    fn parse_endpoint(&self, host: &str, port: u16) -> Result<Endpoint, Decision> {
        let host: Host =
            host.parse().map_err(|error: HostError| Decision::deny(RuleRef::built_in(error.to_string())))?;
        if port == 0 {
            return Err(Decision::deny(RuleRef::built_in("a port must be a number from 1 to 65535")));
        }
        let endpoint = Endpoint { host, port };
        if let Some(entry) = self.denylist.find(|denied| denied.matches(&endpoint)) {
            let denied = Decision::deny(entry.rule.clone());
            return Err(match entry.rule.layer {
                LayerName::Ceiling => denied.with_help(ceiling_help(&endpoint.host, &entry.rule)),
                _ => denied,
            });
        }
        if !self.enabled.value {
            return Err(Decision::deny(self.enabled.rule.clone())
                .with_help(format!("set `net.enabled: true` and add \"{endpoint}\" under `net.allowlist`")));
        }
        Ok(endpoint)
    }

    /// Returns the entry that would have to be added to `net.allowlist`.
    fn allowlist_help(&self, ConnectionAttempt { endpoint, request, raw, .. }: &ConnectionAttempt) -> String {
        let named = self.allowlist.entries().any(|entry| entry.value.names_endpoint(endpoint));
        if *raw {
            return format!("add \"raw {endpoint}\" under `net.allowlist`");
        }
        match request {
            Some(HttpRequest { path: Err(why), .. }) if named => {
                format!("{why}: use an unambiguous path, or add \"{endpoint}\" under `net.allowlist`")
            }
            Some(HttpRequest { method, .. }) if named => {
                format!("add the path, or \"{method} {endpoint}\", under `net.allowlist`")
            }
            None if named => format!(
                "methods and paths are not visible in a tunnel: add \"{endpoint}\" under `net.intercept` or `net.allowlist`"
            ),
            _ => format!("add \"{endpoint}\" under `net.allowlist`"),
        }
    }
}

impl FsRules {
    fn decide_read(&self, path: &Path) -> Decision {
        match locate(path) {
            Err(why) => Decision::deny(RuleRef::built_in(why)),
            Ok(PathLocation::Workspace(inside)) => match self.deny_read.find(|glob| glob.matches(&inside)) {
                Some(entry) if entry.value.is_secrets() => Decision::deny(entry.rule.clone())
                    .with_help("a file that git tracks stays visible; `viv policy explain` lists the hidden files"),
                Some(entry) => Decision::deny(entry.rule.clone()),
                None => Decision::allow(self.workspace.rule.clone()),
            },
            Ok(PathLocation::Elsewhere(path)) => self.decide_read_elsewhere(&path),
        }
    }

    fn decide_read_elsewhere(&self, path: &Path) -> Decision {
        if let Some(rule) = sandbox_directory(path, &["/tmp", "/deps"]) {
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
            Ok(PathLocation::Elsewhere(path)) => return self.decide_write_elsewhere(&path),
            Ok(PathLocation::Workspace(inside)) => inside,
        };
        if self.workspace.value == WorkspaceMode::Readonly {
            return Decision::deny(self.workspace.rule.clone()).with_help("set `fs.workspace: overlay`");
        }
        // A hidden file cannot be written either: an apply would overwrite the file on the host. Recognised secrets are
        // checked when changes are applied, because only the host knows which files they are.
        let denied = self.deny_write.find(|glob| glob.matches(&inside));
        match denied.or_else(|| self.deny_read.find(|glob| !glob.is_secrets() && glob.matches(&inside))) {
            Some(entry) => Decision::deny(entry.rule.clone()),
            None => Decision::allow(self.workspace.rule.clone()),
        }
    }

    fn decide_write_elsewhere(&self, path: &Path) -> Decision {
        if let Some(rule) = sandbox_directory(path, &["/tmp"]) {
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

/// Returns a rule if `path` is in one of the `directories` that the sandbox creates itself, without host files.
fn sandbox_directory(path: &Path, directories: &[&str]) -> Option<RuleRef> {
    let directory = directories.iter().find(|directory| path.starts_with(directory))?;
    Some(RuleRef::built_in(format!("`{directory}` belongs to the sandbox")))
}

/// Last labels of names of this machine, its local network and its metadata services.
const LOCAL_SUFFIXES: [&str; 5] = ["localhost", "local", "internal", "instance-data", "goog"];

/// Returns the help for a host that a rule of the ceiling denies.
fn ceiling_help(host: &Host, rule: &RuleRef) -> &'static str {
    let is_nearby = match host {
        Host::Address(_) => true,
        Host::Name(name) => name.rsplit('.').next().is_some_and(|last| LOCAL_SUFFIXES.contains(&last)),
    };
    match (is_nearby, rule.file == RuleRef::BUILT_IN) {
        (_, false) => "denied by the organisation policy; no other policy can allow it",
        (true, _) => "no policy can allow it: this machine, local networks and metadata services are always denied",
        (false, _) => "no policy can allow it: models are called through the gateway",
    }
}
