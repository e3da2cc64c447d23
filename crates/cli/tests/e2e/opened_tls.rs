//! Intercepted TLS with programs that use different TLS libraries.

use crate::fixture::viv_fixture;
use testkit::{ProgramOutput, VivFixture};

/// A denied request; a program sees the denial only if it trusts the proxy's certificate.
const PROGRAMS: [(&str, &str); 3] = [
    ("curl", "curl -s -o /dev/null -w '%{http_code}' https://api.example.com/v2"),
    (
        "openssl",
        "printf 'GET /v2 HTTP/1.1\\r\\nHost: api.example.com\\r\\n\\r\\n' | openssl s_client -quiet -verify_return_error \
         -proxy 127.0.0.1:18081 -connect api.example.com:443 -servername api.example.com 2>/dev/null",
    ),
    ("git", "git ls-remote https://api.example.com/v2 2>&1"),
];
const POLICY: &str = "version: 1\nfs: {read: [/usr, /bin, /lib, /lib64]}\ntools: {allow: [\"*\"]}\n\
                      proc: {memory: 512MiB, nofile: 1024, timeout: 30s}\n\
                      net: {enabled: true, allowlist: [\"GET api.example.com/v1/**\"], intercept: [api.example.com]}\n";

/// Runs a shell line with intercepted TLS for one host.
fn shell(place: &VivFixture, line: &str) -> ProgramOutput {
    let policy = place.data_dir().with_file_name("opened.yaml");
    std::fs::write(&policy, POLICY).unwrap();
    place.run(&["exec", &format!("--policy={}", policy.display()), "--", "bash", "-c", line])
}

#[test]
fn programs_trust_the_proxy_and_receive_its_denial() {
    let place = viv_fixture();
    for (program, line) in PROGRAMS {
        let ran = shell(&place, line);
        assert!(ran.stdout.contains("403"), "{program}: {} {}", ran.stdout, ran.stderr);
        // With the machine's own roots the same program rejects the certificate.
        let alone = shell(&place, &format!("unset ${{!SSL_@}} ${{!CURL_@}} ${{!GIT_@}}; {line}"));
        assert!(!alone.stdout.contains("403"), "{program}: {}", alone.stdout);
    }
}

#[test]
fn trusted_roots_are_read_only_and_differ_between_sandboxes() {
    let place = viv_fixture();
    let ran = shell(&place, "grep -c BEGIN $SSL_CERT_FILE; cat $SSL_CERT_FILE; echo x >> $SSL_CERT_FILE || echo kept");
    assert!(ran.stdout.ends_with("kept\n") && !ran.stdout.contains("PRIVATE KEY"), "{} {}", ran.stdout, ran.stderr);
    let (first, second) = (own(&place), own(&place));
    assert!(first.contains("BEGIN CERTIFICATE") && first != second, "{first}");
    let without = place.run(&["exec", "--policy=open", "--", "bash", "-c", "echo $SSL_CERT_FILE; ls /viv"]);
    assert_eq!((without.code, without.stdout.as_str()), (2, "\n"));
}

/// Returns the last certificate, that of the session's CA.
fn own(place: &VivFixture) -> String {
    shell(place, "tac $SSL_CERT_FILE | sed '/BEGIN/q' | tac").stdout
}

#[test]
fn a_missing_credential_fails_early_and_a_credential_is_never_in_the_sandbox() {
    let place = viv_fixture();
    let policy = place.data_dir().with_file_name("injected.yaml");
    let inject = "  inject: [\"mirror.example.com:80 X-Key={mirror}\"]\n";
    let text = "version: 1\nfs: {read: [/usr, /bin, /lib, /lib64]}\ntools: {allow: [\"*\"]}\nnet:\n  enabled: true\n";
    std::fs::write(&policy, format!("{text}{inject}")).unwrap();
    let chosen = format!("--policy={}", policy.display());
    let ran = place.run(&["exec", &chosen, "--", "true"]);
    assert_eq!(ran.code, 125, "{}", ran.stderr);
    assert!(ran.stderr.contains("cannot inject the credential `mirror` (net.inject)"), "{}", ran.stderr);

    std::fs::create_dir_all(place.data_dir()).unwrap();
    std::fs::write(place.data_dir().join("viv.toml"), "[credentials.mirror]\nkey_file = \"mirror.key\"\n").unwrap();
    std::fs::write(place.data_dir().join("mirror.key"), "canary-77aa31\n").unwrap();
    let search =
        "env; cat /proc/*/environ /proc/*/cmdline; find / -xdev -type f -size -64k -path '/[^usd]*' -exec cat {} +";
    let ran = place.run(&["--json", "exec", &chosen, "--", "bash", "-c", &format!("{search}; echo looked")]);
    assert!(ran.stdout.contains("looked") && !ran.stdout.contains("canary-77aa31"), "{}", ran.stdout);
    // A placeholder for programs that require the variable.
    assert!(ran.stdout.contains("MIRROR=vivplaceholde\\n"), "{}", ran.stdout);
    let section = "[credentials.mirror]\nkey_file = \"mirror.key\"\nvariable = \"MIRROR_TOKEN\"\n";
    std::fs::write(place.data_dir().join("viv.toml"), section).unwrap();
    let ran = place.run(&["exec", &chosen, "--", "sh", "-c", "echo $MIRROR $MIRROR_TOKEN"]);
    assert_eq!(ran.stdout, "vivplaceholde\n", "{}", ran.stderr);
}

#[test]
fn denied_requests_in_intercepted_tls_are_recorded_and_suggested() {
    let place = viv_fixture();
    let parent = place.data_dir().parent().unwrap().to_owned();
    let more = "models: {allow: [\"*\"], budget_usd: 1.00, max_requests: 100}\ndegrade: {cpus: none, memory: rlimit, pids: rlimit}\n";
    std::fs::write(parent.join("p.yaml"), format!("{POLICY}{more}")).unwrap();
    let fetch = |path: &str| format!("curl -sS https://api.example.com{path}");
    let task = format!(
        "version: 1\nname: refused\nsandbox: {{policy: p.yaml}}\ncommands:\n  - run: [sh, -c, \"{}\"]\n    expect: {{contains: is not allowed}}\n",
        fetch("/v2/x?token=t")
    );
    std::fs::write(parent.join("task.yaml"), task).unwrap();
    // A task may only narrow the policy; the person who starts it chooses a wider one.
    let chosen = format!("sandbox.policy={}", parent.join("p.yaml").display());
    let ran = place.run(&["task", parent.join("task.yaml").to_str().unwrap(), "--set", &chosen]);
    assert_eq!(ran.code, 0, "{ran:?}");
    // The same in the sandbox of an agent.
    let line = format!("/run {}", fetch("/v3"));
    let policy = parent.join("p.yaml");
    let ran = place.run(&["run", "mock", "--perms=allow", "--policy", policy.to_str().unwrap(), &line]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let log = place.run(&["policy", "log", "@last", "--denied"]).stdout;
    assert!(log.contains("\tdenied\tapi.example.com:443\tGET /v3\t1\t"), "{log}");
    let suggested = place.run(&["policy", "suggest", "@last"]).stdout;
    std::fs::write(parent.join("suggested.yaml"), &suggested).unwrap();
    let test = |path: &str| {
        let url = format!("https://api.example.com{path}");
        place.run(&["policy", "test", parent.join("suggested.yaml").to_str().unwrap(), "http", "GET", &url]).code
    };
    assert_eq!([test("/v1/a"), test("/v3"), test("/v2")], [0, 0, 5], "{suggested}");
}
