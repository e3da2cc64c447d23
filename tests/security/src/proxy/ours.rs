//! The proxy of the product, in front of the internet of the suite.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use egress::{Egress, Identity, Internet, Limits, LivePolicy, Outfit};
use policy::{Base, Ceiling, Source};
use protocol::SessionId;
use store::{MemoryJournal, SystemClock};

use super::internet;

/// The addresses and names of the suite, with connections that are really made.
struct Hermetic;

impl Internet for Hermetic {
    fn resolve<'a>(&'a self, name: &'a str) -> futures_util::future::BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let found = internet::resolve(name).ok_or_else(|| io::Error::other("no such name"));
        Box::pin(async move { found.map(|address| vec![address]) })
    }

    fn is_own(&self, address: IpAddr) -> bool {
        internet::is_own(address)
    }

    fn connect(&self, address: SocketAddr) -> futures_util::future::BoxFuture<'_, io::Result<tokio::net::TcpStream>> {
        Box::pin(tokio::net::TcpStream::connect(address))
    }
}

/// Serves `listener` by the rules of `text` until the process is ended.
pub(super) fn serve(listener: TcpListener, text: &str) {
    let base = Base::read(&Source::new("attack", text)).expect("policy");
    let policy = policy::effective(&Ceiling::built_in().expect("ceiling"), &base, &[]);
    let session = SessionId::new("attack").expect("id");
    let identity = Identity {
        session: session.clone(),
        journal: Arc::new(MemoryJournal::new(session, Arc::new(SystemClock))),
        turn: Arc::new(|| None),
        policy: LivePolicy::new(policy),
        // A client that says nothing is given up soon, so that it can be seen.
        outfit: Outfit::default(),
        names: None,
        limits: Limits { head_timeout: Duration::from_millis(500), ..Limits::default() },
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    runtime.block_on(async {
        let _attachment = Egress::new(Arc::new(Hermetic)).attach(listener, identity).expect("proxy");
        std::future::pending::<()>().await;
    });
}
