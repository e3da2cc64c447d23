//! Messages for invalid policies.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Helpers of tests are not seen as tests.

use miette::{GraphicalReportHandler, GraphicalTheme};
use policy::{BaseLayer, NarrowingLayer, PolicyError, PolicySource, narrow};

fn render(error: &PolicyError) -> String {
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor()).with_width(100);
    let mut shown = String::new();
    for finding in error.findings() {
        handler.render_report(&mut shown, finding).unwrap();
    }
    shown
}

#[track_caller]
fn complaint(text: &str) -> String {
    render(&BaseLayer::read(&PolicySource::new("sandbox.policy.yaml", text)).expect_err("the policy is invalid"))
}

macro_rules! complaints {
    ($($name:ident: $text:expr;)*) => {
        $(
            #[test]
            fn $name() {
                insta::assert_snapshot!(complaint($text));
            }
        )*
    };
}

complaints! {
    unknown_key_with_suggestion: "version: 1\nnet:\n  enabled: true\n  allow_list: [packages.example.com]\n";
    unknown_key_at_the_top: "version: 1\nnetwork: {}\n";
    unknown_key_without_suggestion: "proc:\n  quota: 12\n";
    duplicate_key: "net:\n  enabled: false\n  enabled: true\n";
    duplicate_section: "net: {enabled: false}\nfs: {}\nnet: {enabled: true}\n";
    bad_glob: "fs:\n  deny_read:\n    - \"**/.env\"\n    - \"secrets/[ab\"\n";
    absolute_glob: "fs:\n  deny_write: [\"/etc/**\"]\n";
    bad_size: "proc:\n  memory: 2gb\n  disk: lots\n";
    bad_duration: "proc:\n  timeout: 30\n";
    zero_limit: "proc:\n  pids: 0\n";
    no_instead_of_a_boolean: "net:\n  enabled: no\n";
    wrong_version: "version: 2\n";
    wrong_mode: "fs:\n  workspace: overlays\n";
    wrong_means: "degrade: {disk: rlimit}\n";
    means_without_implementation: "degrade:\n  cpus: rlimit\n  disk: none\n  landlock: rlimit\n";
    host_with_a_user: "net:\n  allowlist: [\"user@example.com:443\"]\n";
    host_as_a_url: "net:\n  allowlist: [\"https://example.com/x\"]\n";
    injection_without_interception: "net:\n  inject: [\"a.example.com Authorization=Bearer {one}\"]\n";
    header_injected_twice: "net:\n  inject: [\"*.example.com:80 x-key={one}\", \"a.example.com:80 X-Key={two}\"]\n";
    injection_into_reserved_header_or_any_host: "net:\n  inject: [\"a.example.com:80 Host={one}\", \"*:80 X-Key={one}\"]\n";
    injection_without_credential_name: "net:\n  inject: [\"a.example.com:80 X-Key=sk-123\", \"a.example.com:80 X-Key={a}{b}\"]\n";
    host_with_a_trailing_dot: "net:\n  allowlist: [\"example.com.:443\"]\n";
    host_in_unicode: "net:\n  allowlist: [\"bücher.example:443\"]\n";
    host_with_a_star_inside: "net:\n  allowlist: [\"api-*.example.com:443\"]\n";
    host_with_a_nul: "net:\n  allowlist: [\"example.com\\0.evil.example:443\"]\n";
    host_that_is_a_number: "net:\n  allowlist: [\"127.1:443\"]\n";
    port_out_of_range: "net:\n  allowlist: [\"example.com:0\", \"example.com:65536\"]\n";
    path_of_the_whole_host: "fs:\n  read: [/usr, /]\n";
    path_that_is_not_absolute: "fs:\n  read: [lib]\n";
    model_key_passed: "env:\n  pass: [LANG, ANTHROPIC_API_KEY]\n";
    tool_without_its_bracket: "tools:\n  ask: [\"Bash(rm *\"]\n";
    list_instead_of_value: "fs:\n  workspace: [overlay]\n";
    value_instead_of_list: "net:\n  allowlist: example.com\n";
    text_that_is_not_yaml: "net: [\n";
    merge_key: "fs: &a {read: []}\nnet:\n  <<: *a\n";
    two_documents: "version: 1\n---\nversion: 1\n";
    unknown_tag: "net:\n  enabled: !maybe true\n";
    all_mistakes_are_reported_together: "fs:\n  read: [lib]\nproc:\n  memory: 1.5GiB\n  cpus: many\nmodels:\n  budget_usd: -1\n";
    tool_pattern_with_terminal_escape: "tools:\n  allow: [\"Bash(\\x1b]0;x\\x07)\"]\n";
    terminal_escapes_are_masked: "net:\n  allowlist: [\"a\\x1b[31mb\"]\n";
}

#[test]
fn alias_bomb() {
    let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x, x, x]");
    for (this, last) in "bcdefgh".chars().zip("abcdefg".chars()) {
        let aliases = vec![format!("*{last}"); 10].join(", ");
        bomb.extend(["\n", &this.to_string(), ": &", &this.to_string(), " [", &aliases, "]"]);
    }
    insta::assert_snapshot!("alias_bomb_under_unknown_keys", complaint(&bomb));
    let flat = format!("fs:\n  read: [&p /usr, {}]\n", vec!["*p"; 30].join(", "));
    insta::assert_snapshot!("alias_bomb_in_a_list", complaint(&flat));
    let nested = "fs: &f\n  read: [/usr]\n  deny_read: *f\n";
    insta::assert_snapshot!("alias_that_contains_itself", complaint(nested));
}

#[test]
fn too_large_file_is_rejected_unread() {
    insta::assert_snapshot!(complaint(&"#\n".repeat(200_000)));
}

#[test]
fn findings_point_into_arguments() {
    let complaint = |argument: &str| render(&narrow(argument).expect_err("the argument is invalid"));
    insta::assert_snapshot!("argument_unknown_key", complaint("proc.memmory=512MiB"));
    insta::assert_snapshot!("argument_bad_value", complaint("proc.memory=512Mi"));
    insta::assert_snapshot!("argument_without_equals", complaint("proc.memory"));
    insta::assert_snapshot!("argument_bad_item", complaint("net.allowlist=a.example.com, b_.example.com"));
    insta::assert_snapshot!("argument_bad_boolean", complaint("net.enabled=no"));
}

#[test]
fn findings_have_line_numbers() {
    let text = "net:\n  allowlist:\n    - good.example.com\n    - bad_.example.com\n";
    let error = NarrowingLayer::read(&PolicySource::new("p.yaml", text)).unwrap_err();
    assert_eq!(error.findings()[0].line(), Some(4));
}
