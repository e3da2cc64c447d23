//! The egress proxy alone, for its benchmark: one session with a file journal, and one host.
//!
//! `bench_proxy HOST_ADDRESS JOURNAL` prints its listening address and serves until its standard input ends.
#![expect(clippy::print_stdout, reason = "the benchmark reads the listening address")]

use std::error::Error;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use egress::{Egress, EgressIdentity, EgressLimits, Internet, LivePolicy, ProxyCredentials};
use futures_util::future::BoxFuture;
use policy::{BaseLayer, CeilingLayer, PolicySource};
use protocol::SessionId;
use store::{FileJournal, SystemClock};
use tokio::net::{TcpSocket, TcpStream};

const POLICY: &str = "version: 1\nnet:\n  enabled: true\n  allowlist: [\"bench.example.com:443\"]\n";

/// A network in which every name resolves to one public address, which is the benchmark's host.
struct OneHost(SocketAddr);

impl Internet for OneHost {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async { Ok(vec![Ipv4Addr::new(203, 0, 113, 10).into()]) })
    }

    fn is_local(&self, address: IpAddr) -> bool {
        egress::SystemInternet.is_local(address)
    }

    fn connect(&self, _: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>> {
        Box::pin(TcpStream::connect(self.0))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let host = arguments.next().ok_or("HOST_ADDRESS is missing")?.parse()?;
    let journal = arguments.next().ok_or("JOURNAL is missing")?;
    let session = SessionId::new("bench")?;
    let opened = FileJournal::open(journal, session.clone(), Arc::new(SystemClock))?;
    let base = BaseLayer::read(&PolicySource::new("bench", POLICY))?;
    let identity = EgressIdentity {
        session,
        journal: Arc::new(opened.journal),
        turn: Arc::new(|| None),
        policy: LivePolicy::new(policy::effective(&CeilingLayer::built_in()?, &base, &[])),
        credentials: ProxyCredentials::default(),
        dns: None,
        limits: EgressLimits::default(),
        in_flight: base::ByteBudget::new(64 << 20),
    };
    // The same backlog as a sandbox's listener, whose constant is in another crate.
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let listener = socket.listen(4096)?.into_std()?;
    println!("{}", listener.local_addr()?);
    let attachment = Egress::new(Arc::new(OneHost(host))).attach(listener, identity)?;
    tokio::task::spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new())).await??;
    attachment.close().await;
    Ok(())
}
