//! Tests of `viv doctor`, `viv policy explain --session` and machine-wide settings.

use serde_json::Value;

use crate::fixture::viv_fixture;
use crate::server::Server;
use testkit::VivFixture;

/// Kernel features that a sandbox needs.
const NEEDED: [&str; 11] = [
    "user namespace",
    "mount namespace",
    "pid namespace",
    "network namespace",
    "ipc namespace",
    "uts namespace",
    "cgroup namespace",
    "overlayfs",
    "idmapped mount",
    "landlock",
    "seccomp",
];

fn doctor(place: &VivFixture, more: &[&str]) -> Value {
    let ran = place.run(&[&["--json", "doctor"], more].concat());
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn doctor_checks_each_feature_and_lists_the_enforcement_of_policy_keys() {
    let place = viv_fixture();
    let found = doctor(&place, &[]);
    let status = |id: &str| {
        let checks = found["checks"].as_array().unwrap();
        checks.iter().find(|check| check["id"] == id).map(|check| check["status"].clone())
    };
    for id in NEEDED.into_iter().chain(["sandbox", "data directory"]) {
        assert_eq!(status(id), Some("ok".into()), "{id} in {found:#}");
    }
    for id in ["memory limit", "socket memory", "pids limit", "cpu limit"] {
        assert!(matches!(status(id).unwrap().as_str(), Some("ok" | "weaker")), "{id} in {found:#}");
    }
    for key in ["fs.deny_read", "fs.workspace", "net", "proc.memory", "proc.sockets", "proc.timeout", "terminals"] {
        assert!(found["enforced"][key]["by"].is_string(), "{key} in {found:#}");
    }
}

#[test]
fn doctor_results_are_stored_until_the_next_boot() {
    let place = viv_fixture();
    let first = doctor(&place, &[]);
    let kept = place.data_dir().join("doctor.json");
    let forged =
        std::fs::read_to_string(&kept).unwrap().replace("installed, and refuses a filtered call", "from the last time");
    std::fs::write(&kept, &forged).unwrap();
    assert!(doctor(&place, &[]).to_string().contains("from the last time"));
    assert_eq!(doctor(&place, &["--fresh"]), first);

    let boot = first["boot_id"].as_str().unwrap();
    std::fs::write(&kept, forged.replace(boot, "another boot")).unwrap();
    assert_eq!(doctor(&place, &[]), first);
}

#[test]
fn doctor_checks_the_configured_backend_and_says_why_it_was_chosen() {
    let place = viv_fixture();
    let sandbox = |found: &Value| found["checks"].as_array().unwrap().last().unwrap().clone();
    let first = sandbox(&doctor(&place, &[]));
    let made = "made by jail, the first that works of jail, podman, docker";
    assert!(first["summary"].as_str().unwrap().starts_with(made), "{first}");

    // The stored results belong to another configuration.
    let text = "[sandbox]\nbackend = \"docker\"\nsocket = \"/nowhere/engine.sock\"\n";
    std::fs::write(place.data_dir().join("viv.toml"), text).unwrap();
    let ran = place.run(&["--json", "doctor"]);
    assert_eq!(ran.code, 6, "{}{}", ran.stdout, ran.stderr);
    let failed = sandbox(&serde_json::from_str(&ran.stdout).unwrap());
    assert!(failed.to_string().contains("no docker engine answers (/nowhere/engine.sock"), "{failed}");
    assert!(failed["help"].as_str().is_some_and(|help| help.contains("start docker")), "{failed}");
}

#[test]
fn the_policy_of_a_session_is_explained_with_its_layers() {
    let place = viv_fixture();
    let ran = place.run(&["run", "--workspace", "workspace", "--policy", "strict", "mock", "/echo hello"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let told = place.run(&["policy", "explain", "--session", "@last"]);
    assert_eq!((told.code, told.stderr.as_str()), (0, ""));
    assert!(
        told.stdout.contains("enforced by the jail backend:") && told.stdout.contains("[base: strict:"),
        "{}",
        told.stdout
    );
    let json = place.run(&["--json", "policy", "explain", "--session", "@last"]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert!(json["sentences"].as_array().unwrap().len() > 5 && json["keys"]["net"].is_object(), "{json:#}");

    let missing = place.run(&["policy", "explain", "--session", "nobody"]);
    assert_eq!(missing.code, 3, "{}", missing.stderr);
}

#[test]
fn dependencies_are_visible_and_read_only() {
    let place = viv_fixture();
    let deps = tempfile::tempdir().unwrap();
    std::fs::write(deps.path().join("library"), "of ours").unwrap();
    let path = deps.path().to_str().unwrap();
    let line = "cat /deps/library; touch /deps/new || rm -f /deps/library || echo refused";
    let ran = place.run(&["exec", "--deps", path, "--", "sh", "-c", line]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "of oursrefused\n"), "{}", ran.stderr);
    assert_eq!(std::fs::read_dir(deps.path()).unwrap().count(), 1);
}

#[test]
fn servers_raise_their_descriptor_limit() {
    for arguments in [&["serve", "--no-auth"][..], &["gateway", "serve"]] {
        let place = viv_fixture();
        let server = Server::start_with_few_files(&place, arguments, 256);
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
        let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        let both: Vec<&str> = files.split_whitespace().take(2).collect();
        assert!(both[0] == both[1] && both[0] != "256", "{arguments:?}: {files}");
        server.stop();
    }
}
