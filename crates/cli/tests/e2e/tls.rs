//! Tests of `viv serve` with TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use rcgen::CertifiedKey;

use crate::fixture::viv_fixture;
use crate::server::Server;
use testkit::{ProgramOutput, VivFixture};

/// Writes a certificate for the loopback address and its key.
fn pair(place: &VivFixture, name: &str) -> (PathBuf, PathBuf) {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names).unwrap();
    let (certificate, key) =
        (place.workspace().join(format!("{name}.pem")), place.workspace().join(format!("{name}.key")));
    std::fs::write(&certificate, cert.pem()).unwrap();
    std::fs::write(&key, signing_key.serialize_pem()).unwrap();
    (certificate, key)
}

/// Calls the server with curl, which trusts only `root`.
fn curl(root: &PathBuf, arguments: &[&str]) -> ProgramOutput {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "60", "--noproxy", "*", "--cacert"]).arg(root);
    ProgramOutput::from(command.args(arguments).output().unwrap())
}

#[test]
fn a_client_that_trusts_the_certificate_can_use_the_api() {
    let place = viv_fixture();
    let (certificate, key) = pair(&place, "own");
    let cert = format!("--tls-cert={}", certificate.display());
    let key = format!("--tls-key={}", key.display());
    let server = Server::start_as(&place, &["serve", &cert, &key]);
    let base = server.base();
    assert!(base.starts_with("https://"), "{base}");
    let token = std::fs::read_to_string(place.data_dir().join("api.token")).unwrap();
    let bearer = format!("Authorization: Bearer {}", token.trim());

    let post = |path: &str, body: &str| {
        let url = format!("{base}{path}");
        curl(&certificate, &["-H", &bearer, "-H", "Content-Type: application/json", "-d", body, &url])
    };
    let made = post("/v1/sessions/s1", r#"{"agent":"mock"}"#);
    assert!(made.stdout.contains(r#""healthy":true"#), "{} {}", made.stdout, made.stderr);
    let told = post("/v1/sessions/s1/messages/stream?events=all", r#"{"message":"/echo sealed"}"#);
    assert!(
        told.stdout.contains("sealed") && told.stdout.contains("event: turn.ended"),
        "{} {}",
        told.stdout,
        told.stderr
    );
    let without = curl(&certificate, &[&format!("{base}/v1/sessions")]);
    assert!(without.stdout.contains("token_invalid"), "{} {}", without.stdout, without.stderr);

    let stranger = curl(&pair(&place, "other").0, &[&format!("{base}/v1/health")]);
    assert_eq!((stranger.code, stranger.stdout.as_str()), (60, ""), "an untrusted certificate was accepted");
    let mut plain = TcpStream::connect(base.strip_prefix("https://").unwrap()).unwrap();
    plain.write_all(b"GET /v1/health HTTP/1.0\r\nhost: localhost\r\n\r\n").unwrap();
    let mut said = Vec::new();
    // The server may close the connection in any way.
    let _ = plain.read_to_end(&mut said);
    assert!(!String::from_utf8_lossy(&said).contains("HTTP/1"), "plain HTTP was answered");
    server.stop();
}

#[test]
fn unusable_certificates_are_rejected_at_start() {
    let place = viv_fixture();
    let (certificate, key) = pair(&place, "own");
    let (_, other) = pair(&place, "other");
    let (missing, text) = (place.workspace().join("missing.pem"), place.workspace().join("kept.txt"));
    for (cert, key, wrong) in [
        (&missing, &key, "missing.pem"),
        (&certificate, &missing, "missing.pem"),
        (&text, &key, "kept.txt"),
        (&certificate, &text, "kept.txt"),
        (&certificate, &other, "do not belong together"),
    ] {
        let (cert, key) = (format!("--tls-cert={}", cert.display()), format!("--tls-key={}", key.display()));
        let ran = place.run(&["serve", "--listen=127.0.0.1:0", &cert, &key]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains("config_invalid") && ran.stderr.contains(wrong), "{}", ran.stderr);
        assert!(ran.stderr.contains("help:"), "{}", ran.stderr);
    }
    let half = place.run(&["serve", "--listen=127.0.0.1:0", &format!("--tls-cert={}", certificate.display())]);
    assert_eq!(half.code, 2, "{}", half.stderr);
}
