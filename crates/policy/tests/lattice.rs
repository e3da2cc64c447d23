//! Laws of the intersection (`meet`) of policies, tested on random policy texts.
#![allow(clippy::unwrap_used)] // Helpers of tests are not seen as tests.

use policy::{
    Action, BaseLayer, CeilingLayer, CompiledPolicy, Endpoint, NarrowingLayer, PolicySource, RegistryAccess,
    SecretClue, Verdict, effective,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

const HOSTS: &[&str] = &[
    "*",
    "*:*",
    "*.example.org",
    "*.a.example.org:443",
    "a.example.org:443",
    "b.a.example.org",
    "a.example.org:80",
    "a.example.org:*",
    "*.example.org:*",
    "203.0.113.7:443",
    "[2001:db8::1]:443",
    "example.com",
    "*.deeper.example.com",
    "*.an-example.org",
    "GET a.example.org:80",
    "GET|HEAD *.example.org:80/files/**",
    "HEAD|PUT a.example.org:80/files",
    "a.example.org:80/files/deep/**",
    "*:80/**",
];
const DENIED_HOSTS: &[&str] = &["*.example.org", "203.0.113.0/24", "a.example.org:443", "*a.example*", "2001:db8::/32"];
const INTERCEPTED: &[&str] = &["a.example.org", "*.example.org:*", "*:80", "example.com:443", "203.0.113.7"];
const INJECTED: &[&str] = &[
    "a.example.org:80 Authorization=Bearer {one}",
    "*.example.org:80 authorization=Bearer {one}",
    "b.example.com:80 X-Key={two}",
    "*.a.example.org:8080 X-Key={two}",
];
const PATHS: &[&str] = &["/usr", "/usr/lib", "/usr/lib/x", "/opt", "/etc/ssl", "/usr/bin"];
const GLOBS: &[&str] = &["**/.env", "secrets/**", "src", "*.pem", ".git/hooks/**", "**/b"];
const MODELS: &[&str] = &["*", "claude-*", "*-mini", "claude-sonnet-*", "gpt-5", "*4*"];
const TOOLS: &[&str] = &["*", "Bash", "Bash(git *)", "Bash(rm *)", "Read", "mcp__*", "Bash(git push*)", "Read(/etc*)"];
const VARIABLES: &[&str] = &["LANG", "TERM", "TZ"];

fn actions() -> Vec<Action> {
    let net = |host: &str, port| Action::Net { host: host.to_owned(), port };
    let tool = |name: &str, argument: &str| Action::Tool { name: name.to_owned(), argument: argument.to_owned() };
    let mut all = Vec::new();
    for host in [
        "a.example.org",
        "b.a.example.org",
        "example.org",
        "example.com",
        "x.deeper.example.com",
        "x.an-example.org",
        "203.0.113.7",
        "2001:db8::1",
        "a..b",
    ] {
        all.extend([80, 443, 8443].map(|port| net(host, port)));
        all.push(Action::Raw { host: host.to_owned(), port: 8443 });
    }
    for (method, path) in
        [("GET", "/"), ("GET", "/files/a"), ("PUT", "/files"), ("HEAD", "/files/deep/x"), ("GET", "/a//b")]
    {
        for host in ["a.example.org", "b.example.org", "203.0.113.7"] {
            let (host, method, path) = (host.to_owned(), method.to_owned(), path.to_owned());
            all.push(Action::Http { host, port: 80, method, path });
        }
    }
    for path in [
        "a.rs",
        ".env",
        "x/.env",
        "secrets",
        "secrets/k",
        "src/b/c",
        "k.pem",
        ".git/hooks/x",
        "/usr/bin/git",
        "/usr/lib/x/y",
        "/opt/a",
        "/etc/ssl/c",
        "/etc/passwd",
        "/tmp/x",
        "a/../b",
    ] {
        all.extend([Action::Read(path.into()), Action::Write(path.into())]);
    }
    for name in ["claude-sonnet-4", "claude-mini", "gpt-5", "gpt-4-mini", "other"] {
        all.push(Action::Model(name.to_owned()));
    }
    for command in ["git status", "git push origin", "rm -rf x", "git status && rm x", "ls", ""] {
        all.push(tool("Bash", command));
        all.push(Action::Exec(command.split(' ').map(str::to_owned).collect()));
    }
    all.extend([tool("Read", "/etc/passwd"), tool("Read", "x"), tool("mcp__files__get", "x"), tool("Other", "")]);
    all
}

fn list(pool: &'static [&'static str]) -> impl Strategy<Value = Option<String>> {
    option::of(subsequence(pool, 0..=3).prop_map(|items| format!("{items:?}")))
}

fn word(pool: &'static [&'static str]) -> impl Strategy<Value = Option<String>> {
    option::of(select(pool).prop_map(str::to_owned))
}

/// Returns a policy text in which any key may be absent.
fn text() -> impl Strategy<Value = String> {
    let fs = (word(&["overlay", "bind", "readonly"]), list(PATHS), list(PATHS), list(GLOBS), list(GLOBS));
    let net = (
        word(&["true", "false"]),
        list(HOSTS),
        list(DENIED_HOSTS),
        list(INTERCEPTED),
        list(INJECTED),
        word(&["none", "stub"]),
        word(&["true", "false"]),
    )
        // A base cannot open registries and disable the network.
        .prop_map(|(enabled, allow, deny, intercept, inject, dns, packages)| {
            let packages = packages.filter(|open| open == "false" || enabled.as_deref() != Some("false"));
            (enabled, allow, deny, intercept, inject, dns, packages)
        });
    let proc =
        (word(&["1", "0.5", "2.0"]), word(&["1GiB", "512MiB", "4GB"]), word(&["64", "256"]), word(&["30m", "10s"]));
    let degrade = (word(&["enforced", "rlimit", "none"]), word(&["enforced", "none"]));
    let models = (list(MODELS), word(&["0", "2.00", "0.5"]), word(&["0", "500"]));
    let tools = (list(TOOLS), list(TOOLS), list(TOOLS));
    (fs, net, proc, degrade, list(VARIABLES), models, tools).prop_map(|(fs, net, proc, degrade, env, models, tools)| {
        let sections = [
            section(
                "fs",
                &[("workspace", fs.0), ("read", fs.1), ("write", fs.2), ("deny_read", fs.3), ("deny_write", fs.4)],
            ),
            section(
                "net",
                &[
                    ("enabled", net.0),
                    ("allowlist", net.1),
                    ("denylist", net.2),
                    ("intercept", net.3),
                    ("inject", net.4),
                    ("dns", net.5),
                    ("packages", net.6),
                ],
            ),
            section("proc", &[("cpus", proc.0), ("memory", proc.1), ("pids", proc.2), ("timeout", proc.3)]),
            section("degrade", &[("memory", degrade.0), ("landlock", degrade.1)]),
            section("env", &[("pass", env)]),
            section("models", &[("allow", models.0), ("budget_usd", models.1), ("max_requests", models.2)]),
            section("tools", &[("allow", tools.0), ("ask", tools.1), ("deny", tools.2)]),
        ];
        sections.concat()
    })
}

fn section(name: &str, keys: &[(&str, Option<String>)]) -> String {
    let lines = keys.iter().filter_map(|(key, value)| value.as_ref().map(|value| format!("  {key}: {value}\n")));
    let body: String = lines.collect();
    if body.is_empty() { body } else { format!("{name}:\n{body}") }
}

fn narrowing(text: &str) -> NarrowingLayer {
    NarrowingLayer::read(&PolicySource::new("narrowing.yaml", text)).unwrap()
}

fn base(text: &str) -> BaseLayer {
    BaseLayer::read(&PolicySource::new("base.yaml", text)).unwrap()
}

/// Returns the policy of any kind of layer.
fn policy() -> impl Strategy<Value = CompiledPolicy> {
    (text(), any::<bool>())
        .prop_map(|(text, whole)| if whole { base(&text).policy().clone() } else { narrowing(&text).policy().clone() })
}

fn verdict(policy: &CompiledPolicy, action: &Action) -> Verdict {
    policy.decide(action).allowed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn meet_is_commutative_associative_and_idempotent(a in policy(), b in policy(), c in policy()) {
        prop_assert_eq!(a.meet(&b), b.meet(&a));
        prop_assert_eq!(a.meet(&b).meet(&c), a.meet(&b.meet(&c)));
        prop_assert_eq!(a.meet(&a), a.clone());
        prop_assert_eq!(CompiledPolicy::unrestricted().meet(&a), a.clone());
        prop_assert_eq!(a.meet(&b).meet(&b), a.meet(&b));
    }

    #[test]
    fn meet_is_within_each_side(a in policy(), b in policy()) {
        let meet = a.meet(&b);
        prop_assert!(meet.is_within(&a) && meet.is_within(&b));
    }

    #[test]
    fn actions_allowed_by_the_meet_are_allowed_by_each_side(a in policy(), b in policy()) {
        let meet = a.meet(&b);
        for action in actions() {
            let strictest = verdict(&a, &action).min(verdict(&b, &action));
            prop_assert!(verdict(&meet, &action) <= strictest, "{action}");
            // A host path that one side allows in `read` and the other in `write` may be denied by the intersection.
            if !matches!(action, Action::Read(_) | Action::Exec(_)) {
                prop_assert_eq!(verdict(&meet, &action), strictest, "{}", action);
            }
        }
    }

    #[test]
    fn numbers_and_words_of_a_session_are_within_every_layer(
        texts in vec(text(), 1..4), chosen in text()
    ) {
        let ceiling = CeilingLayer::built_in().unwrap();
        let narrowings: Vec<_> = texts.iter().map(|text| narrowing(text)).collect();
        let whole = effective(&ceiling, &base(&chosen), &narrowings);
        for fewer in (0..narrowings.len()).map(|count| effective(&ceiling, &base(&chosen), &narrowings[..count])) {
            let (narrow, wide) = (whole.limits(), fewer.limits());
            prop_assert!(narrow.cpu_millis <= wide.cpu_millis && narrow.memory_bytes <= wide.memory_bytes);
            prop_assert!(narrow.pids <= wide.pids && narrow.timeout <= wide.timeout && narrow.nofile <= wide.nofile);
            prop_assert!(narrow.output_bytes <= wide.output_bytes && narrow.disk_bytes <= wide.disk_bytes);
            prop_assert!(narrow.socket_bytes <= wide.socket_bytes);
            prop_assert!(whole.fs().workspace_mode <= fewer.fs().workspace_mode);
            prop_assert!(whole.models().budget_picos <= fewer.models().budget_picos);
            prop_assert!(whole.models().max_requests <= fewer.models().max_requests);
            prop_assert!(whole.degrade().memory <= fewer.degrade().memory);
            prop_assert!(whole.degrade().landlock <= fewer.degrade().landlock);
            prop_assert!(whole.env_pass().iter().all(|name| fewer.env_pass().contains(name)));
            prop_assert!(!whole.net().enabled || fewer.net().enabled);
            prop_assert!(whole.net().credentials.is_subset(&fewer.net().credentials));
            prop_assert!(whole.net().dns <= fewer.net().dns);
            prop_assert!(!whole.net().packages || fewer.net().packages);
            for name in ["a.example.org", "x.example.org", "b.example.com", "other.example.net"] {
                prop_assert!(whole.decide_name(name).allowed <= fewer.decide_name(name).allowed, "{name}");
            }
            for host in ["a.example.org:80", "b.a.example.org:8080", "b.example.com:80"] {
                let endpoint: Endpoint = host.parse().unwrap();
                let wide = fewer.injections(&endpoint);
                prop_assert!(whole.injections(&endpoint).iter().all(|header| wide.contains(header)), "{host}");
            }
        }
    }

    #[test]
    fn enforced_lists_agree_with_the_evaluator(a in text(), b in text(), c in text()) {
        let layers = [narrowing(&b), narrowing(&c)];
        let whole = effective(&CeilingLayer::built_in().unwrap(), &base(&a), &layers);
        let (fs, net) = (whole.fs(), whole.net());
        let listed = format!("enabled: {}, allowlist: {:?}, denylist: {:?}", net.enabled, net.allowlist, net.denylist);
        let listed = narrowing(&format!("net: {{{listed}, intercept: {:?}}}\n", net.intercept));
        for action in actions() {
            let decided = whole.decide(&action).is_allowed();
            match &action {
                Action::Net { .. } | Action::Raw { .. } | Action::Http { .. } => {
                    prop_assert_eq!(listed.policy().decide(&action).is_allowed(), decided);
                }
                Action::Read(path) if path.is_absolute() && !path.starts_with("/tmp") => {
                    let shown = fs.read_paths.iter().chain(&fs.write_paths).any(|prefix| path.starts_with(prefix));
                    prop_assert_eq!(shown, decided);
                }
                Action::Read(path) if path.to_str() != Some("a/../b") => {
                    let secret = fs.deny_read.hides_secrets() && policy::secret_clue(path) == Some(SecretClue::Name);
                    let hidden = secret || fs.deny_read.matches(path);
                    prop_assert_eq!(!hidden || path.starts_with("/tmp"), decided);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn a_layer_that_has_tls_opened_lets_nothing_through_that_the_others_do_not_list(
        texts in vec(text(), 1..3), hosts in list(INTERCEPTED)
    ) {
        let policies: Vec<_> = texts.iter().map(|text| narrowing(text)).collect();
        let before = policies.iter().fold(CompiledPolicy::unrestricted(), |all, layer| all.meet(layer.policy()));
        let layer = narrowing(&section("net", &[("intercept", hosts)]));
        prop_assert!(layer.widenings(&before).is_empty());
        let after = before.meet(layer.policy());
        prop_assert!(after.is_within(&before));
        for action in actions() {
            prop_assert!(verdict(&after, &action) <= verdict(&before, &action), "{action}");
            let Action::Http { host, method, path, .. } = &action else { continue };
            let over_tls = Action::http(method, &format!("https://{host}:80{path}")).unwrap();
            // A request over intercepted TLS is allowed if a rule lists it or if the tunnel was allowed before.
            let listed = verdict(&before, &action).max(verdict(&before, &over_tls));
            prop_assert!(verdict(&after, &over_tls) <= listed, "{over_tls}");
        }
    }

    #[test]
    fn registries_are_only_read_and_every_layer_can_close_them(chosen in text(), narrow in text(), extra in text()) {
        let ceiling = CeilingLayer::built_in().unwrap();
        let before = base(&chosen);
        let open = before.with_packages().with_registries(&registries()).unwrap();
        let closed = narrowing("net: {packages: false}\n");
        let (layer, extra) = (narrowing(&narrow), narrowing(&extra));
        let with = |base: &BaseLayer, layers: &[NarrowingLayer]| effective(&ceiling, base, layers).policy().clone();
        // Each layer still only takes away, in any order.
        let all = with(&open, &[layer.clone(), extra.clone()]);
        prop_assert_eq!(&all, &with(&open, &[extra, layer.clone()]));
        prop_assert!(all.is_within(&with(&open, std::slice::from_ref(&layer))));
        let (opened, shut) = (with(&open, &[]), with(&open, &[closed]));
        for action in actions() {
            let (now, was) = (verdict(&opened, &action), verdict(&with(&before, &[]), &action));
            // The network was off, or a registry is read: nothing else becomes possible.
            prop_assert!(now <= was || is_registry_read(&action), "{action}");
            // A host of a registry may have become intercepted; nothing is wider than before.
            prop_assert!(verdict(&shut, &action) <= was, "{action}");
            let narrowed = verdict(&with(&open, std::slice::from_ref(&layer)), &action);
            prop_assert!(narrowed <= now.min(verdict(layer.policy(), &action)), "{action}");
        }
    }

    #[test]
    fn layers_without_widenings_allow_nothing_more(
        above in text(), hosts in list(HOSTS), paths in list(PATHS), models in list(MODELS), tools in list(TOOLS)
    ) {
        let above = base(&above);
        let asks = [
            section("net", &[("allowlist", hosts)]),
            section("fs", &[("write", paths)]),
            section("models", &[("allow", models)]),
            section("tools", &[("allow", tools)]),
        ];
        // Denials above still apply and are not widenings, so only the allow-lists are compared.
        let open = narrowing("net: {enabled: true}\nfs: {workspace: bind}\n");
        let deny = |action: &Action| above.policy().decide(action).rule.text;
        for ask in asks.iter().filter(|ask| !ask.is_empty()) {
            let requested = narrowing(ask);
            let no_widening = requested.widenings(above.policy()).is_empty();
            for action in actions().iter().filter(|action| is_about(action, ask)) {
                let wanted = verdict(&requested.policy().meet(open.policy()), action) == Verdict::Allow;
                let refused = verdict(above.policy(), action) == Verdict::Deny && deny(action).contains("none match");
                prop_assert!(!(no_widening && wanted && refused), "{ask} is not a widening, but {action} is denied");
            }
        }
    }
}

fn registries() -> Vec<RegistryAccess> {
    let registry = |endpoint: &str, tls| RegistryAccess {
        endpoint: endpoint.to_owned(),
        tls,
        inject: None,
        origin: "npm: ~/.npmrc".to_owned(),
    };
    vec![registry("a.example.org:80", false), registry("b.example.org:443", true)]
}

fn is_registry_read(action: &Action) -> bool {
    match action {
        Action::Http { host, port, method, .. } => {
            let is_listed = registries().iter().any(|registry| registry.endpoint == format!("{host}:{port}"));
            is_listed && matches!(method.as_str(), "GET" | "HEAD")
        }
        _ => false,
    }
}

fn is_about(action: &Action, ask: &str) -> bool {
    match action {
        Action::Net { .. } | Action::Raw { .. } | Action::Http { .. } | Action::Https { .. } => ask.starts_with("net"),
        Action::Write(path) => ask.starts_with("fs") && path.is_absolute(),
        Action::Model(_) => ask.starts_with("models"),
        // Several entries above may allow a line with several commands, each covering one of them.
        Action::Tool { argument, .. } => ask.starts_with("tools") && !argument.contains("&&"),
        Action::Read(_) | Action::Exec(_) => false,
    }
}
