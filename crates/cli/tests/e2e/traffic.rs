//! Tests of `viv policy log` and `viv policy suggest`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::fixture::viv_fixture;
use crate::server::Server;
use testkit::{ProgramOutput, VivFixture, wait_for_exit};

const POLICY: &str = "version: 1\nfs: {workspace: overlay, read: [/usr, /lib, /lib64, /bin]}\n\
    net:\n  enabled: true\n  allowlist: [\"kept.example.com:443\"]\n\
    degrade: {cpus: none, memory: rlimit, pids: rlimit}\nmodels: {allow: [\"*\"], budget_usd: 1.00, max_requests: 100}\ntools: {allow: [\"*\"]}\n";

#[track_caller]
fn good(ran: ProgramOutput) -> String {
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.stdout
}

/// Returns an environment with a session that was denied two hosts, one of them twice.
fn place() -> VivFixture {
    let place = viv_fixture();
    let policy = place.workspace().parent().unwrap().join("p.yaml");
    std::fs::write(policy, POLICY).unwrap();
    let _server = Server::start_as(&place, &["serve", "--no-auth", "--policy", "p.yaml"]);
    good(place.run(&["api", "POST", "/v1/sessions/s1", "--data", r#"{"agent":"mock"}"#]));
    for url in ["http://files.example.com/a/b?key=secret", "https://api.openai.com/", "http://files.example.com/a/b"] {
        let message = serde_json::json!({"message": format!("/fetch {url}")}).to_string();
        good(place.run(&["api", "POST", "/v1/sessions/s1/messages/stream", "--data", &message]));
    }
    let metrics = good(place.run(&["api", "GET", "/metrics"]));
    assert!(metrics.contains("viv_egress_attempts_total{verdict=\"denied\"} 3\n"), "{metrics}");
    good(place.run(&["api", "POST", "/v1/sessions/s1/terminate"]));
    place
}

#[test]
fn denied_connections_are_listed_and_suggested() {
    let place = place();
    let table = good(place.run(&["policy", "log", "s1", "--denied"]));
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split('\t').collect()).collect();
    let count = |host: &str| rows.iter().filter(|row| row[2] == host).map(|row| row[4].parse::<u64>().unwrap()).sum();
    let counts: [u64; 2] = ["files.example.com:80", "api.openai.com:443"].map(count);
    assert_eq!(counts, [2, 1], "{table}");
    assert_eq!((rows[0][1], rows[0][3]), ("denied", "GET /a/b"), "{table}");
    assert!(rows[0][7].contains("net.allowlist has 1 entry, none match (p.yaml:5)"), "{table}");
    assert!(!table.contains("secret"));
    for line in good(place.run(&["--json", "policy", "log", "s1"])).lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["type"], "egress.denied");
    }

    let suggested = good(place.run(&["policy", "suggest", "s1"]));
    let file = place.workspace().parent().unwrap().join("suggested.yaml");
    std::fs::write(&file, &suggested).unwrap();
    assert_eq!(good(place.run(&["policy", "check", "suggested.yaml"])), "suggested.yaml: ok\n");
    let test = |question: &[&str]| place.run(&[&["policy", "test", "suggested.yaml"], question].concat()).code;
    assert_eq!(test(&["http", "GET", "http://files.example.com/a/b"]), 0, "{suggested}");
    assert_eq!(test(&["http", "POST", "http://files.example.com/a/b"]), 5, "{suggested}");
    assert_eq!(test(&["net", "kept.example.com:443"]), 0, "{suggested}");
    assert_eq!(test(&["net", "api.openai.com:443"]), 5, "{suggested}");
    assert!(
        suggested.contains("# denied 2 times: GET /a/b\n")
            && suggested.contains("# no policy can allow api.openai.com:443")
    );
    let told: Value = serde_json::from_str(&good(place.run(&["--json", "policy", "suggest", "s1"]))).unwrap();
    assert_eq!(told["policy"], suggested);
    assert_eq!(place.run(&["policy", "log", "nobody"]).code, 3);
}

#[test]
fn denied_connections_of_a_running_session_can_be_followed() {
    let place = viv_fixture();
    let _server = Server::start(&place);
    good(place.run(&["api", "POST", "/v1/sessions/s1", "--data", r#"{"agent":"mock"}"#]));
    let mut watching = place.command(&["policy", "log", "s1", "-f"]).stdout(Stdio::piped()).spawn().unwrap();
    good(place.run(&["sessions", "send", "s1", "/fetch http://files.example.com/a"]));
    let mut line = String::new();
    BufReader::new(watching.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("\tdenied\tfiles.example.com:80\tGET /a\t"), "{line}");
    good(place.run(&["sessions", "stop", "s1"]));
    assert!(wait_for_exit(&mut watching).success());
}

/// Requests a page and returns the hint of the proxy's answer.
fn told(place: &VivFixture, url: &str) -> String {
    let message = serde_json::json!({"message": format!("/fetch {url}")}).to_string();
    let events = good(place.run(&["api", "POST", "/v1/sessions/s1/messages/stream", "--data", &message]));
    let start = events.find("what to do: ").unwrap_or_else(|| panic!("{events}"));
    events[start..].split("\\n").next().unwrap().to_owned()
}

#[test]
fn a_person_narrows_and_grants_network_access_of_a_running_session() {
    let place = viv_fixture();
    std::fs::write(place.workspace().parent().unwrap().join("p.yaml"), POLICY).unwrap();
    let serve = ["serve", "--no-auth", "--policy", "p.yaml"];
    let server = Server::start_as(&place, &serve);
    good(place.run(&["api", "POST", "/v1/sessions/s1", "--data", r#"{"agent":"mock"}"#]));
    let url = "http://files.example.com/other";
    assert!(told(&place, url).starts_with("what to do: add \\\"files.example.com:80"), "nothing was granted yet");

    // The rule covers another path, so no connection is made; the proxy's answer names the rule.
    good(place.run(&["policy", "grant", "s1", "net.allowlist=GET files.example.com:80/granted"]));
    assert!(told(&place, url).starts_with("what to do: add the path"), "the grant does not hold");
    let refused = place.run(&["policy", "grant", "s1", "fs.read=/etc"]);
    assert!(refused.code == 2 && refused.stderr.contains("only `net` can change"), "{refused:?}");
    let refused = place.run(&["policy", "narrow", "s1", "net.allowlist=more.example.com:443"]);
    assert!(refused.code == 5 && refused.stderr.contains("policy_widening_denied"), "{refused:?}");
    assert_eq!(place.run(&["policy", "grant", "s1", "net.enabled=true", "--seconds=0"]).code, 2);

    // The changes survive a restart in their order.
    server.stop();
    let server = Server::start_as(&place, &serve);
    assert!(told(&place, url).starts_with("what to do: add the path"), "the grant was forgotten");
    good(place.run(&["policy", "narrow", "s1", "net.enabled=false"]));
    assert!(told(&place, url).starts_with("what to do: set `net.enabled: true`"), "the narrowing does not hold");
    server.stop();
    let _server = Server::start_as(&place, &serve);
    assert!(told(&place, url).starts_with("what to do: set `net.enabled: true`"), "the narrowing was forgotten");
    let kinds = good(place.run(&["--json", "logs", "s1", "--kind", "policy"]));
    let kinds: Vec<Value> = kinds.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let changes: Vec<&Value> = kinds.iter().filter(|event| event["type"] != "policy.effective").collect();
    assert_eq!(changes.len(), 2);
    assert_eq!((&changes[0]["type"], &changes[1]["type"]), (&"policy.widened".into(), &"policy.narrowed".into()));
}
