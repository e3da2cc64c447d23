//! The DNS server inside: listed names have a placeholder address, and no query leaves the host.

use std::net::SocketAddr;

use policy::{EffectivePolicy, NarrowingLayer, PolicySource};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket},
};

use crate::support::{Sandbox, policy, soon};

const A: u16 = 1;
const NO_SUCH_NAME: u8 = 3;
const REFUSED: u8 = 5;

fn stub() -> EffectivePolicy {
    policy(
        "net:\n  enabled: true\n  dns: stub\n  allowlist: [files.example.com, '*.cdn.example.com', 'GET web.example.com:80/a']\n  \
         denylist: [bad.cdn.example.com]\n",
    )
}

fn question(name: &str, kind: u16) -> Vec<u8> {
    let mut bytes = vec![3, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend([kind.to_be_bytes(), 1u16.to_be_bytes()].concat());
    bytes
}

async fn datagram(server: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(bytes, server).await.unwrap();
    let mut response = vec![0; 600];
    let length = soon(socket.recv(&mut response)).await.unwrap();
    response.truncate(length);
    response
}

/// Returns the response code and the number of addresses.
async fn ask(server: SocketAddr, name: &str, kind: u16) -> (u8, u8) {
    let response = datagram(server, &question(name, kind)).await;
    assert_eq!(response[..2], [3, 9]);
    (response[3] & 15, response[7])
}

#[tokio::test]
async fn listed_names_have_one_address_and_others_do_not_exist() {
    let (sandbox, server) = Sandbox::with_dns(stub());
    for name in ["files.example.com", "FILES.example.com", "a.cdn.example.com", "web.example.com"] {
        assert_eq!(ask(server, name, A).await, (0, 1), "{name}");
        let response = datagram(server, &question(name, A)).await;
        assert!(response.ends_with(&[0, 4, 192, 0, 2, 1]), "{name}");
        assert_eq!(ask(server, name, 28).await, (0, 0), "{name}");
    }
    for name in ["vault.example.com", "cdn.example.com", "bad.cdn.example.com", "api.openai.com", "localhost", "x"] {
        assert_eq!(ask(server, name, A).await, (NO_SUCH_NAME, 0), "{name}");
    }
    assert!(sandbox.network.looked_up().is_empty() && sandbox.network.called().is_empty());
    let denied = sandbox.record("egress.denied").await;
    assert_eq!((&denied["host"], &denied["method"]), (&"vault.example.com".into(), &"DNS".into()), "{denied}");
}

#[tokio::test]
async fn no_query_leaves_the_host() {
    let (sandbox, server) = Sandbox::with_dns(stub());
    let label = "6c6f6f74".repeat(7);
    let names = [
        format!("{label}.cdn.example.com"),
        format!("{label}.{label}.{label}.cdn.example.com"),
        format!("{label}.vault.example.com"),
        format!("{label}.files.example.com"),
    ];
    for name in &names {
        // TXT, MX, SRV, CNAME, NULL, HTTPS: types whose answers could carry data.
        for kind in [A, 28, 16, 15, 33, 5, 10, 65] {
            let (code, answers) = ask(server, name, kind).await;
            assert!(code == NO_SUCH_NAME || (code == 0 && answers == u8::from(kind == A)), "{name} {kind}: {code}");
        }
        for kind in [251, 252, 255] {
            assert_eq!(ask(server, name, kind).await, (REFUSED, 0), "{name} {kind}");
        }
    }
    assert!(sandbox.network.looked_up().is_empty() && sandbox.network.called().is_empty());
}

#[tokio::test]
async fn tcp_queries_get_the_same_answers_and_invalid_ones_close_the_connection() {
    let (_sandbox, server) = Sandbox::with_dns(stub());
    let mut stream = TcpStream::connect(server).await.unwrap();
    for (name, code) in [("files.example.com", 0), ("vault.example.com", NO_SUCH_NAME), ("a.cdn.example.com", 0)] {
        let query = question(name, A);
        stream.write_all(&u16::try_from(query.len()).unwrap().to_be_bytes()).await.unwrap();
        stream.write_all(&query).await.unwrap();
        let mut response = vec![0; usize::from(soon(stream.read_u16()).await.unwrap())];
        soon(stream.read_exact(&mut response)).await.unwrap();
        assert_eq!(response[3] & 15, code, "{name}");
    }
    stream.write_all(&[0xff, 0xff, 0, 0]).await.unwrap();
    assert_eq!(soon(stream.read(&mut [0; 8])).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn narrowing_removes_names_from_dns() {
    let (sandbox, server) = Sandbox::with_dns(stub());
    let narrow = |text: &str| {
        let narrowing = NarrowingLayer::read(&PolicySource::new("session", text)).unwrap();
        sandbox.policy.replace(sandbox.policy.current().restricted_by(&narrowing));
    };
    assert_eq!(ask(server, "files.example.com", A).await, (0, 1));
    narrow("net: {denylist: [files.example.com]}\n");
    assert_eq!(ask(server, "files.example.com", A).await, (NO_SUCH_NAME, 0));
    assert_eq!(ask(server, "web.example.com", A).await, (0, 1));
    narrow("net: {dns: none}\n");
    assert_eq!(ask(server, "web.example.com", A).await, (REFUSED, 0));
}
