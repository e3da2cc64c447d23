//! Name resolution in the sandbox, with and without its name server.

use crate::fixture::viv_fixture;
use testkit::{ProgramOutput, VivFixture};

fn shell(place: &VivFixture, dns: &str, line: &str) -> ProgramOutput {
    let policy = place.data_dir().with_file_name("names.yaml");
    let text = format!(
        "version: 1\nfs: {{read: [/usr, /bin, /lib, /lib64]}}\ntools: {{allow: [\"*\"]}}\n\
         net: {{enabled: true, allowlist: [files.example.com, \"*.cdn.example.com\"], dns: {dns}}}\n"
    );
    std::fs::write(&policy, text).unwrap();
    place.run(&["exec", &format!("--policy={}", policy.display()), "--", "bash", "-c", line])
}

#[test]
fn only_allowed_names_resolve() {
    let place = viv_fixture();
    for name in ["files.example.com", "a.cdn.example.com"] {
        let ran = shell(&place, "stub", &format!("getent hosts {name}"));
        assert!(ran.stdout.starts_with("192.0.2.1 "), "{name}: {} {}", ran.stdout, ran.stderr);
        assert_eq!(shell(&place, "none", &format!("getent hosts {name}")).code, 2, "{name}");
    }
    assert_eq!(shell(&place, "stub", "getent hosts vault.example.com").code, 2);
    assert!(shell(&place, "stub", "getent hosts localhost").stdout.contains("localhost"));
}

#[test]
fn resolved_addresses_are_unreachable() {
    let place = viv_fixture();
    let ran = shell(&place, "stub", "curl --noproxy '*' -sS -m 5 http://files.example.com/ 2>&1");
    assert_eq!(ran.code, 7, "{}", ran.stdout);
    // The proxy itself is given the name.
    let ran = shell(&place, "stub", "curl -sS -m 5 http://vault.example.com/");
    assert!(ran.stdout.contains("is not allowed by the policy"), "{} {}", ran.stdout, ran.stderr);
}
