//! Requests for more than the policy allows are denied, unless a person granted exactly this.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Helpers of tests are not seen as tests.

use policy::{
    Action, BaseLayer, CeilingLayer, EffectivePolicy, GrantContext, GrantScope, NarrowingLayer, PolicySource,
    WideningDenied, WideningGrant, narrow, resolve,
};
use protocol::{ProblemCode, SessionId};

const BASE: &str = r#"fs: {workspace: overlay, read: [/usr], deny_write: []}
net: {enabled: true, allowlist: ["*.example.org:443"]}
proc: {memory: 2GiB}
models: {allow: ["claude-*"], budget_usd: 2}
tools: {allow: [Read, "Bash(git *)"], ask: [Bash]}
degrade: {memory: rlimit}
"#;

const NOW: u64 = 1_800_000_000;

fn me() -> SessionId {
    "one".parse().unwrap()
}

fn resolved(narrowings: &[NarrowingLayer], grants: &[WideningGrant]) -> Result<EffectivePolicy, WideningDenied> {
    let base = BaseLayer::read(&PolicySource::new("base.yaml", BASE)).unwrap();
    let context = GrantContext { session_id: Some(me()), call: Some("call-1".to_owned()), now_unix_secs: NOW };
    resolve(&CeilingLayer::built_in().unwrap(), &base, narrowings, grants, &context)
}

#[track_caller]
fn denied(argument: &str) -> String {
    let error = resolved(&[narrow(argument).unwrap()], &[]).expect_err("the argument is a widening");
    assert_eq!(error.code(), ProblemCode::PolicyWideningDenied);
    error.to_string()
}

fn grant(covers: &str) -> WideningGrant {
    WideningGrant {
        scope: GrantScope::Session { session_id: me() },
        covers: covers.to_owned(),
        expires_unix_secs: NOW + 600,
    }
}

fn net(host: &str) -> Action {
    Action::Net { host: host.to_owned(), port: 443 }
}

#[test]
fn equal_or_stricter_values_are_accepted() {
    for argument in [
        "proc.memory=2GiB",
        "proc.memory=8MiB",
        "net.allowlist=a.example.org",
        "net.allowlist=",
        "net.enabled=false",
        "fs.read=/usr/lib",
        "fs.workspace=readonly",
        "models.allow=claude-sonnet-*",
        "tools.allow=Read(x),Bash(git log)",
        "tools.ask=Read",
        "tools.deny=*",
        "fs.deny_read=**",
        "net.denylist=*",
        "net.intercept=*:*",
        "net.inject=",
        "net.dns=none",
        "net.packages=false",
        "degrade.memory=enforced",
        "env.pass=",
        "tools.allow=Bash",
    ] {
        assert!(resolved(&[narrow(argument).unwrap()], &[]).is_ok(), "{argument}");
    }
}

#[test]
fn widening_is_denied_with_key_and_value() {
    assert_eq!(
        denied("net.inject=a.example.org:80 X-Key={mine}"),
        "`--narrow` cannot add `a.example.org:80 x-key={mine}` to `net.inject`: the default is `net.inject: []`"
    );
    assert_eq!(
        denied("net.packages=true"),
        "`--narrow` cannot set `net.packages` to `true`: the default is `net.packages: false`"
    );
    assert_eq!(denied("net.dns=stub"), "`--narrow` cannot set `net.dns` to `stub`: the default is `net.dns: none`");
    assert_eq!(
        denied("proc.memory=4GiB"),
        "`--narrow` cannot set `proc.memory` to `4GiB`: policy `base.yaml:3` sets `proc.memory: 2GiB`"
    );
    assert_eq!(
        denied("net.allowlist=a.example.org,b.example.com"),
        "`--narrow` cannot add `b.example.com:443` to `net.allowlist`: policy `base.yaml:2` sets `net.allowlist: [*.example.org:443]`"
    );
    for argument in [
        "net.allowlist=*",
        "net.allowlist=a.example.org:*",
        "fs.read=/",
        "fs.read=/etc",
        "fs.write=/usr",
        "fs.workspace=bind",
        "models.allow=*",
        "models.allow=gpt-5",
        "models.budget_usd=2.01",
        "models.max_requests=1",
        "proc.pids=65",
        "tools.allow=Write",
        "tools.ask=Write",
        "tools.allow=*",
        "degrade.memory=none",
        "degrade.pids=rlimit",
        "env.pass=LANG",
    ] {
        if argument == "fs.read=/" {
            assert!(narrow(argument).is_err());
        } else {
            denied(argument);
        }
    }
}

#[test]
fn project_file_is_denied_with_all_of_its_widenings() {
    let file =
        PolicySource::new("sandbox.policy.yaml", "net:\n  allowlist:\n    - evil.example.com\nproc:\n  memory: 8GiB\n");
    let error = resolved(&[NarrowingLayer::read(&file).unwrap()], &[]).expect_err("the file is a widening");
    let lines: Vec<_> = error.widenings.iter().map(|widening| (widening.key.name(), widening.rule.line)).collect();
    assert_eq!(lines, [("net.allowlist", Some(3)), ("proc.memory", Some(5))]);
}

#[test]
fn grant_covers_exactly_one_value() {
    let requested = [narrow("net.allowlist=a.example.org,b.example.com").unwrap()];
    let session = resolved(&requested, &[grant("net.allowlist=b.example.com:443")]).unwrap();
    assert!(session.decide(&net("a.example.org")).is_allowed());
    assert!(session.decide(&net("b.example.com")).is_allowed());
    assert!(!session.decide(&net("c.example.org")).is_allowed());
    for other in [
        "net.allowlist=*",
        "net.allowlist=*.example.com",
        "net.allowlist=b.example.com:80",
        "net.enabled=true",
        "net.allowlist=b.example.com,c.example.com",
        "nonsense",
    ] {
        assert!(resolved(&requested, &[grant(other)]).is_err(), "{other}");
    }
}

#[test]
fn every_kind_of_key_can_be_granted() {
    for (requested, covers) in [
        ("proc.memory=4GiB", "proc.memory=4096MiB"),
        ("fs.workspace=bind", "fs.workspace=bind"),
        ("fs.read=/etc/ssl", "fs.read=/etc/ssl/"),
        ("fs.write=/var/x", "fs.write=/var/x"),
        ("models.allow=gpt-5", "models.allow=gpt-5"),
        ("models.budget_usd=3", "models.budget_usd=3.00"),
        ("tools.allow=Write", "tools.allow=Write"),
        ("tools.ask=Write", "tools.ask=Write"),
        ("env.pass=LANG", "env.pass=LANG"),
        ("degrade.memory=none", "degrade.memory=none"),
    ] {
        let narrowing = narrow(requested).unwrap();
        let session = resolved(std::slice::from_ref(&narrowing), &[grant(covers)]).expect(requested);
        assert_eq!(narrowing.widenings(session.policy()), [], "{requested} was granted and has no effect");
    }
}

#[test]
fn grant_expires_and_belongs_to_one_session_and_call() {
    let requested = [narrow("proc.memory=4GiB").unwrap()];
    let good = grant("proc.memory=4GiB");
    assert!(resolved(&requested, std::slice::from_ref(&good)).is_ok());
    assert!(resolved(&requested, &[WideningGrant { expires_unix_secs: NOW, ..good.clone() }]).is_err());
    let scope =
        |session: &str, call: &str| GrantScope::Call { session_id: session.parse().unwrap(), call: call.to_owned() };
    assert!(resolved(&requested, &[WideningGrant { scope: scope("one", "call-1"), ..good.clone() }]).is_ok());
    assert!(resolved(&requested, &[WideningGrant { scope: scope("one", "call-2"), ..good.clone() }]).is_err());
    assert!(resolved(&requested, &[WideningGrant { scope: scope("two", "call-1"), ..good }]).is_err());
}

#[test]
fn grants_cannot_exceed_the_ceiling() {
    let organisation = PolicySource::new("/etc/viv/policy.yaml", "proc: {memory: 3GiB}\n");
    let ceiling = CeilingLayer::built_in().unwrap().with_organisation(&organisation).unwrap();
    let base = BaseLayer::read(&PolicySource::new("base.yaml", BASE)).unwrap();
    let context = GrantContext { session_id: Some(me()), call: None, now_unix_secs: NOW };
    let outcome = |covers: &str| resolve(&ceiling, &base, &[narrow(covers).unwrap()], &[grant(covers)], &context);
    assert_eq!(outcome("proc.memory=3GiB").unwrap().limits().memory_bytes, 3 << 30);
    assert!(outcome("proc.memory=4GiB").is_err());
    let vendor = outcome("net.allowlist=api.anthropic.com").unwrap();
    assert!(!vendor.decide(&net("api.anthropic.com")).is_allowed());
}

#[test]
fn grants_round_trip_through_json() {
    let text = serde_json::to_string(&grant("proc.memory=4GiB")).unwrap();
    assert_eq!(
        text,
        r#"{"scope":{"session":{"session_id":"one"}},"match":"proc.memory=4GiB","expires_unix_secs":1800000600}"#
    );
    assert_eq!(serde_json::from_str::<WideningGrant>(&text).unwrap(), grant("proc.memory=4GiB"));
}

#[test]
fn running_session_gets_granted_values_up_to_the_ceiling() {
    let organisation = PolicySource::new("organisation", "net: {allowlist: [\"*.example.com:443\"]}\n");
    let ceiling = CeilingLayer::built_in().unwrap().with_organisation(&organisation).unwrap();
    let base =
        BaseLayer::read(&PolicySource::new("base", "net: {enabled: false, denylist: [no.example.com]}\n")).unwrap();
    let mut policy = policy::effective(&ceiling, &base, &[]);
    for rule in ["net.enabled=true", "net.allowlist=a.example.com:443", "net.allowlist=no.example.com:443"] {
        policy = policy.with_grant(&NarrowingLayer::grant(rule).unwrap()).unwrap();
    }
    assert!(policy.decide(&net("a.example.com")).is_allowed());
    assert_eq!(policy.decide(&net("a.example.com")).rule.file, "grant");
    assert!(!policy.decide(&net("b.example.com")).is_allowed());
    assert!(!policy.decide(&net("no.example.com")).is_allowed(), "deny-list entries still apply");
    let above = policy.with_grant(&NarrowingLayer::grant("net.allowlist=a.example.org:443").unwrap()).unwrap_err();
    assert_eq!(above.widenings[0].requested, "a.example.org:443");
    // A later narrowing layer takes the granted value away.
    let closed = policy.narrowed(&[NarrowingLayer::assign("net.enabled=false").unwrap()]).unwrap();
    assert!(!closed.decide(&net("a.example.com")).is_allowed());
}

fn base(text: &str) -> Result<BaseLayer, String> {
    BaseLayer::read(&PolicySource::new("test.yaml", text)).map_err(|error| findings(&error))
}

fn findings(error: &policy::PolicyError) -> String {
    let lines = error.findings().iter().map(|found| format!("{} {}", found.message(), found.help_text().unwrap_or("")));
    lines.collect::<Vec<_>>().join("; ")
}

#[test]
fn extended_preset_gets_the_entries_of_the_file_in_addition() {
    let ceiling = CeilingLayer::built_in().unwrap();
    let text = "version: 1\nextends: balanced\nfs: {read: [/srv/tools]}\nproc: {memory: 1GiB}\n";
    let policy = policy::effective(&ceiling, &base(text).unwrap(), &[]);
    let read = policy.fs().read_paths;
    assert!(["/usr", "/srv/tools"].iter().all(|path| read.iter().any(|found| found.as_os_str() == *path)), "{read:?}");
    assert_eq!(policy.limits().memory_bytes, 1 << 30);
    assert_eq!(policy.limits().pids, 512, "absent keys are those of the preset");
    let unknown = base("version: 1\nextends: balanzed\n").unwrap_err();
    assert!(unknown.contains("balanced"), "{unknown}");
    let narrowing = PolicySource::new("narrow.yaml", "version: 1\nextends: open\n");
    let refused = findings(&NarrowingLayer::read(&narrowing).unwrap_err());
    assert!(refused.contains("`extends` works only"), "{refused}");
}

#[test]
fn narrowing_layers_only_remove_toolchains_and_variables() {
    let ceiling = CeilingLayer::built_in().unwrap();
    let text = "version: 1\nenv: {set: [CC=clang]}\npath: {prepend: [/srv/bin]}\ntoolchains: [rust, node]\n";
    let policy = policy::effective(&ceiling, &base(text).unwrap(), &[]);
    assert!(policy.shows_toolchain("rust") && !policy.shows_toolchain("go"));
    assert_eq!(policy.env_set(), [("CC".to_owned(), "clang".to_owned())]);
    assert_eq!(policy.path_prepend(), ["/srv/bin"]);
    let narrowed = |argument: &str| policy.narrowed(&[narrow(argument).unwrap()]);
    assert!(!narrowed("toolchains=rust").unwrap().shows_toolchain("node"));
    assert!(!narrowed("toolchains=none").unwrap().shows_toolchain("rust"));
    assert!(narrowed("env.set=").unwrap().env_set().is_empty());
    for wider in ["toolchains=go", "toolchains=auto", "env.set=CC=gcc", "path.prepend=/tmp"] {
        assert!(narrowed(wider).is_err(), "{wider}");
    }
    let balanced = policy::effective(&ceiling, &BaseLayer::preset(policy::Preset::Balanced).unwrap(), &[]);
    assert!(balanced.shows_toolchain("java"), "`auto` shows all");
    assert!(!policy::effective(&ceiling, &base("version: 1\n").unwrap(), &[]).shows_toolchain("rust"));
    assert!(base("version: 1\ntoolchains: rusty\n").unwrap_err().contains("rust"));
}

#[test]
fn variables_of_the_sandbox_cannot_be_passed_or_set() {
    for text in ["env: {pass: [PATH]}", "env: {set: ['PATH=/x']}", "env: {pass: [HOME]}"] {
        let error = base(&format!("version: 1\n{text}\n")).unwrap_err();
        assert!(error.contains("is set by the sandbox"), "{error}");
    }
}
