//! Decisions of the evaluator and the rules they name.
#![allow(clippy::unwrap_used)] // Helpers of tests are not seen as tests.

use std::net::IpAddr;

use policy::{Action, BaseLayer, CeilingLayer, EffectivePolicy, PolicySource, Preset, Verdict, effective};

const POLICY: &str = r#"version: 1
fs:
  workspace: overlay
  read: [/usr, /bin]
  write: [/var/cache/build]
  deny_read: ["**/.env", "secrets/**"]
  deny_write: [".git/hooks/**", "Makefile"]
net:
  enabled: true
  allowlist:
    - "packages.example.com"
    - "*.example.org:443"
    - "203.0.113.7:8443"
  denylist: ["bad.example.org"]
models:
  allow: ["claude-*"]
tools:
  allow: ["*"]
  ask: ["Bash(rm *)"]
  deny: [WebFetch, "Bash(curl *)"]
"#;

fn session(text: &str) -> EffectivePolicy {
    let base = BaseLayer::read(&PolicySource::new("sandbox.policy.yaml", text)).unwrap();
    effective(&CeilingLayer::built_in().unwrap(), &base, &[])
}

fn net(host: &str, port: u16) -> Action {
    Action::Net { host: host.to_owned(), port }
}

fn tool(name: &str, argument: &str) -> Action {
    Action::Tool { name: name.to_owned(), argument: argument.to_owned() }
}

fn exec(command: &str) -> Action {
    Action::Exec(command.split(' ').map(str::to_owned).collect())
}

#[track_caller]
fn check(action: Action, expected: Verdict, rule: &str) {
    let decision = session(POLICY).decide(&action);
    assert_eq!((decision.allowed, decision.rule.to_string().as_str()), (expected, rule), "{action}");
}

#[test]
fn connections_are_decided_by_host_and_port() {
    use Verdict::{Allow, Deny};
    let none = "net.allowlist has 3 entries, none match (sandbox.policy.yaml:11)";
    check(
        net("packages.example.com", 443),
        Allow,
        "net.allowlist: \"packages.example.com:443\" (sandbox.policy.yaml:11)",
    );
    check(
        net("PACKAGES.Example.com", 443),
        Allow,
        "net.allowlist: \"packages.example.com:443\" (sandbox.policy.yaml:11)",
    );
    check(net("packages.example.com", 80), Deny, none);
    check(net("a.b.example.org", 443), Allow, "net.allowlist: \"*.example.org:443\" (sandbox.policy.yaml:12)");
    check(net("example.org", 443), Deny, none);
    check(net("evilexample.org", 443), Deny, none);
    check(net("203.0.113.7", 8443), Allow, "net.allowlist: \"203.0.113.7:8443\" (sandbox.policy.yaml:13)");
    check(net("203.0.113.8", 8443), Deny, none);
    check(net("bad.example.org", 443), Deny, "net.denylist: \"bad.example.org\" (sandbox.policy.yaml:14)");
    check(
        net("packages.example.com\0.evil.example", 443),
        Deny,
        "a host name contains only letters, digits, hyphens and dots (built-in)",
    );
    check(net("packages.example.com", 0), Deny, "a port must be a number from 1 to 65535 (built-in)");
}

#[test]
fn intercepted_hosts_allow_matching_requests_and_deny_tunnels() {
    let policy = "net:\n  enabled: true\n  allowlist: [\"GET api.example.com/v1/**\", \"*.example.org\"]\n  \
                  intercept: [api.example.com, files.example.org, other.example.com]\n";
    let session = session(policy);
    let https = |method: &str, url: &str| session.decide(&Action::http(method, url).unwrap());
    assert!(https("GET", "https://api.example.com/v1/x").is_allowed());
    for (method, path) in [("POST", "/v1/x"), ("GET", "/v2"), ("GET", "/v1/../v2"), ("GET", "/v1/%2e%2e/v2")] {
        let decision = https(method, &format!("https://api.example.com{path}"));
        assert_eq!(decision.rule.text, "net.allowlist has 2 entries, none match", "{method} {path}");
    }
    assert!(https("DELETE", "https://files.example.org/x").is_allowed());
    assert!(https("DELETE", "https://pages.example.org/x").is_allowed());
    for host in ["api.example.com", "files.example.org"] {
        let decision = session.decide(&net(host, 443));
        assert_eq!(decision.rule.text, format!("net.intercept: \"{host}:443\""), "{host}");
        assert!(session.decide_intercepted_host(host, 443).is_allowed(), "{host}");
    }
    assert!(session.decide(&net("pages.example.org", 443)).is_allowed());
    for host in ["other.example.com", "api.openai.com", "a..b"] {
        assert!(!session.decide_intercepted_host(host, 443).is_allowed(), "{host}");
    }
}

#[test]
fn no_policy_can_exceed_the_built_in_ceiling() {
    let open =
        "net:\n  enabled: true\n  allowlist: [\"*:*\", \"169.254.169.254:80\", \"10.0.0.5:443\", \"[fd00::1]:443\"]\n";
    let session = session(open);
    for host in [
        "api.anthropic.com",
        "api.openai.com",
        "generativelanguage.googleapis.com",
        "eu-aiplatform.googleapis.com",
        "bedrock-runtime.us-east-1.amazonaws.com",
        "mine.openai.azure.com",
        "metadata.google.internal",
        "localhost",
        "db.localhost",
        "printer.local",
        "169.254.169.254",
        "10.0.0.5",
        "[fd00::1]",
        "127.0.0.1",
    ] {
        let decision = session.decide(&net(host, 443));
        assert_eq!((decision.allowed, decision.rule.file.as_str()), (Verdict::Deny, "built-in"), "{host}");
    }
    assert!(session.decide(&net("storage.googleapis.com", 443)).is_allowed());
    // `*` matches names, not addresses.
    assert!(!session.decide(&net("203.0.113.7", 443)).is_allowed());
}

/// Hosts of model vendors, of services that forward model calls, and of agents with their own model servers.
const VENDORS: &[&str] = &[
    "anthropic.com",
    "api.anthropic.com",
    "claude.ai",
    "www.claude.ai",
    "openai.com",
    "eu.api.openai.com",
    "chatgpt.com",
    "ab.chatgpt.com",
    "mine.openai.azure.com",
    "mine.openai.azure.us",
    "x.cognitiveservices.azure.com",
    "eastus.api.cognitive.microsoft.com",
    "m.eastus.models.ai.azure.com",
    "models.inference.ai.azure.com",
    "generativelanguage.googleapis.com",
    "aiplatform.googleapis.com",
    "us-central1-aiplatform.googleapis.com",
    "aiplatform.us.rep.googleapis.com",
    "us-central1-aiplatform.mtls.googleapis.com",
    "cloudcode-pa.googleapis.com",
    "daily-cloudcode-pa.sandbox.googleapis.com",
    "bedrock-runtime.us-east-1.amazonaws.com",
    "bedrock-runtime-fips.us-east-1.amazonaws.com",
    "bedrock-runtime.us-east-1.api.aws",
    "vpce-1.bedrock-runtime.us-east-1.vpce.amazonaws.com",
    "q.us-east-1.amazonaws.com",
    "mistral.ai",
    "codestral.mistral.ai",
    "api.x.ai",
    "eu-west-1.api.x.ai",
    "api.deepseek.com",
    "api.moonshot.cn",
    "coding-intl.dashscope.aliyuncs.com",
    "dashscope.aliyuncs.com",
    "api.z.ai",
    "open.bigmodel.cn",
    "api.minimax.io",
    "ark.cn-beijing.volces.com",
    "hunyuan.tencentcloudapi.com",
    "hunyuan.ap-guangzhou.tencentcloudapi.com",
    "api.hunyuan.cloud.tencent.com",
    "qianfan.baidubce.com",
    "api.groq.com",
    "api.cerebras.ai",
    "api.sambanova.ai",
    "integrate.api.nvidia.com",
    "api.together.xyz",
    "api.together.ai",
    "api.replicate.com",
    "api.deepinfra.com",
    "router.huggingface.co",
    "api-inference.huggingface.co",
    "openrouter.ai",
    "ai-gateway.vercel.sh",
    "gateway.ai.cloudflare.com",
    "models.github.ai",
    "api.githubcopilot.com",
    "api.individual.githubcopilot.com",
    "opencode.ai",
    "ampcode.com",
    "api2.cursor.sh",
];

/// Similar hosts that do not serve models.
const NEIGHBOURS: &[&str] = &[
    "storage.googleapis.com",
    "s3.us-east-1.amazonaws.com",
    "sqs.us-east-1.amazonaws.com",
    "huggingface.co",
    "cdn-lfs.huggingface.co",
    "github.com",
    "api.github.com",
    "raw.githubusercontent.com",
    "blob.core.windows.net",
    "vercel.com",
    "notopenai.com",
    "myanthropic.com",
    "mirrors.aliyuncs.com",
    "baidubce.com",
];

#[test]
fn model_vendors_are_denied_and_similar_hosts_are_not() {
    let session = session("net:\n  enabled: true\n  allowlist: [\"*:*\"]\n");
    for host in VENDORS {
        let decision = session.decide(&net(host, 443));
        assert_eq!((decision.allowed, decision.rule.file.as_str()), (Verdict::Deny, "built-in"), "{host}");
    }
    for host in NEIGHBOURS {
        assert!(session.decide(&net(host, 443)).is_allowed(), "{host}");
    }
}

#[test]
fn resolved_addresses_are_filtered() {
    let session = session(POLICY);
    let allowed = |address: &str| session.decide_address(address.parse::<IpAddr>().unwrap(), 443).is_allowed();
    for private in [
        "127.0.0.1",
        "10.1.2.3",
        "172.31.255.255",
        "192.168.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fd00:ec2::254",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "::127.0.0.1",
    ] {
        assert!(!allowed(private), "{private}");
    }
    assert!(allowed("93.184.215.14") && allowed("2606:2800:21f::1"));
}

#[test]
fn files_in_the_workspace_are_decided_by_mode_and_globs() {
    use Verdict::{Allow, Deny};
    let workspace = "fs.workspace: overlay (sandbox.policy.yaml:3)";
    check(Action::Read("src/main.rs".into()), Allow, workspace);
    check(Action::Read("/workspace/src/main.rs".into()), Allow, workspace);
    check(Action::Write("src/main.rs".into()), Allow, workspace);
    check(Action::Read(".env".into()), Deny, "fs.deny_read: \"**/.env\" (sandbox.policy.yaml:6)");
    check(Action::Read("a/b/.env".into()), Deny, "fs.deny_read: \"**/.env\" (sandbox.policy.yaml:6)");
    check(Action::Read("secrets/deep/key".into()), Deny, "fs.deny_read: \"secrets/**\" (sandbox.policy.yaml:6)");
    check(Action::Write(".env".into()), Deny, "fs.deny_read: \"**/.env\" (sandbox.policy.yaml:6)");
    check(
        Action::Write(".git/hooks/pre-commit".into()),
        Deny,
        "fs.deny_write: \".git/hooks/**\" (sandbox.policy.yaml:7)",
    );
    check(Action::Write(".git/hooks".into()), Deny, "fs.deny_write: \".git/hooks/**\" (sandbox.policy.yaml:7)");
    check(Action::Read(".git/hooks/pre-commit".into()), Allow, workspace);
    check(Action::Write("sandbox.policy.yaml".into()), Deny, "fs.deny_write: \"sandbox.policy.yaml\" (built-in:5)");
    check(
        Action::Read("src/../.env".into()),
        Deny,
        "a path with `..` is not allowed: write the path it leads to (built-in)",
    );
}

#[test]
fn files_outside_the_workspace_are_decided_by_path() {
    use Verdict::{Allow, Deny};
    check(Action::Read("/usr/lib/x.so".into()), Allow, "fs.read: \"/usr\" (sandbox.policy.yaml:4)");
    check(Action::Read("/usrlocal".into()), Deny, "fs.read has 2 entries, none match (sandbox.policy.yaml:4)");
    check(Action::Write("/usr/lib/x.so".into()), Deny, "fs.write has 1 entry, none match (sandbox.policy.yaml:5)");
    check(Action::Write("/var/cache/build/o".into()), Allow, "fs.write: \"/var/cache/build\" (sandbox.policy.yaml:5)");
    check(Action::Read("/var/cache/build/o".into()), Allow, "fs.write: \"/var/cache/build\" (sandbox.policy.yaml:5)");
    check(Action::Read("/etc/passwd".into()), Deny, "fs.read has 2 entries, none match (sandbox.policy.yaml:4)");
    check(Action::Write("/tmp/x".into()), Allow, "`/tmp` belongs to the sandbox (built-in)");
}

#[test]
fn tools_and_commands_are_decided_by_pattern() {
    use Verdict::{Allow, Ask, Deny};
    let everything = "tools.allow: \"*\" (sandbox.policy.yaml:18)";
    let ask = "tools.ask: \"Bash(rm *)\" (sandbox.policy.yaml:19)";
    let curl = "tools.deny: \"Bash(curl *)\" (sandbox.policy.yaml:20)";
    check(tool("Read", "x"), Allow, everything);
    check(tool("WebFetch", "x"), Deny, "tools.deny: \"WebFetch\" (sandbox.policy.yaml:20)");
    check(exec("ls -l"), Allow, everything);
    check(exec("rm -rf x"), Ask, ask);
    check(tool("Bash", "cd x && rm -rf y"), Ask, ask);
    check(tool("Bash", "echo $(rm -rf y)"), Ask, ask);
    check(tool("Bash", "ls\ncurl x"), Deny, curl);
    check(tool("Bash", "rm x; curl y"), Deny, curl);
    check(exec("/opt/tool"), Deny, "fs.read has 2 entries, none match (sandbox.policy.yaml:4)");
    check(exec("./tool"), Allow, everything);
    check(Action::Exec(Vec::new()), Deny, "the command is empty (built-in)");
}

#[test]
fn allowed_command_does_not_allow_a_second_command() {
    let gate =
        session("fs: {read: [/usr]}\ntools: {allow: [\"Bash(git *)\", \"Bash(ls)\"], ask: [\"Bash(git push*)\"]}\n");
    let answer = |command: &str| gate.decide(&tool("Bash", command)).allowed;
    assert_eq!(answer("git status"), Verdict::Allow);
    assert_eq!(answer("git status | ls"), Verdict::Allow);
    assert_eq!(answer("git push origin"), Verdict::Ask);
    for command in
        ["git status; make", "git log `make`", "git log $(make)", "git log && make", "make", "git", "{ make; }"]
    {
        assert_eq!(answer(command), Verdict::Deny, "{command}");
    }
}

#[test]
fn models_are_decided_by_name() {
    use Verdict::{Allow, Deny};
    check(Action::Model("claude-sonnet-4-5".into()), Allow, "models.allow: \"claude-*\" (sandbox.policy.yaml:16)");
    check(Action::Model("gpt-5".into()), Deny, "models.allow has 1 entry, none match (sandbox.policy.yaml:16)");
}

#[test]
fn empty_policy_only_allows_reading_the_workspace() {
    let empty = session("");
    assert!(empty.decide(&Action::Read("src/main.rs".into())).is_allowed());
    for action in [
        net("example.com", 443),
        Action::Read("/usr/bin/env".into()),
        Action::Read(".env".into()),
        Action::Write("src/main.rs".into()),
        Action::Write("/var/x".into()),
        exec("ls"),
        tool("Read", "x"),
        Action::Model("claude-sonnet-4-5".into()),
    ] {
        assert_eq!(empty.decide(&action).allowed, Verdict::Deny, "{action}");
    }
    assert!(empty.env_pass().is_empty() && !empty.net().is_open());
    assert_eq!((empty.models().budget_picos, empty.models().max_requests), (0, 0));
}

#[test]
fn enabled_network_with_an_empty_allow_list_denies_every_host() {
    let closed = session("net: {enabled: true, allowlist: []}\n");
    assert!(!closed.decide(&net("example.com", 443)).is_allowed());
    assert!(!session("net: {enabled: true}\n").decide(&net("example.com", 443)).is_allowed());
}

#[test]
fn presets_are_ordered_by_memory_limit() {
    let limits = Preset::ALL.map(|preset| {
        effective(&CeilingLayer::built_in().unwrap(), &BaseLayer::preset(preset).unwrap(), &[]).limits().memory_bytes
    });
    assert!(limits.is_sorted());
}

#[test]
fn organisation_policy_can_only_take_away() {
    let ceiling = CeilingLayer::built_in().unwrap();
    let organisation =
        PolicySource::new("/etc/viv/policy.yaml", "net: {allowlist: [\"*.example.com:443\"]}\nproc: {memory: 1GiB}\n");
    let ceiling = ceiling.with_organisation(&organisation).unwrap();
    let session = effective(&ceiling, &BaseLayer::preset(Preset::Open).unwrap(), &[]);
    assert_eq!(session.net().allowlist, ["*.example.com:443"]);
    assert_eq!(session.limits().memory_bytes, 1 << 30);
    let decision = session.decide(&net("example.org", 443));
    assert_eq!(decision.rule.location(), "/etc/viv/policy.yaml:1");
}

#[test]
fn digest_depends_on_the_values_and_not_on_their_source() {
    let one = session("proc: {memory: 512MiB}\n");
    assert_eq!(one.digest(), session("# the same\n\nproc:\n  memory: 536870912\n").digest());
    assert_ne!(one.digest(), session("proc: {memory: 513MiB}\n").digest());
    assert_eq!(one.values()["proc.memory"], "512MiB");
}
