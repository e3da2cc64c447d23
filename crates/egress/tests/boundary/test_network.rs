//! A simulated network of a few hosts with public addresses, each of them a listener on loopback.
//!
//! The proxy sees and checks the public addresses. Only the final connect is redirected to loopback, so no check of the
//! proxy has to be switched off for a test.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::Mutex,
};

use egress::Internet;
use futures_util::future::BoxFuture;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// The network of a test. It also records lookups and connections.
#[derive(Default)]
pub(crate) struct TestNetwork {
    names: Mutex<HashMap<String, Vec<IpAddr>>>,
    hosts: Mutex<HashMap<SocketAddr, SocketAddr>>,
    own: Mutex<Vec<IpAddr>>,
    looked_up: Mutex<Vec<String>>,
    lookups: Lookups,
    called: Mutex<Vec<SocketAddr>>,
    tasks: Mutex<JoinSet<()>>,
}

/// The running lookups, and whether they are blocked.
#[derive(Default)]
struct Lookups {
    held: watch::Sender<bool>,
    running: watch::Sender<usize>,
    most: Mutex<usize>,
}

impl TestNetwork {
    /// Blocks or unblocks all lookups.
    pub(crate) fn hold_lookups(&self, held: bool) {
        self.lookups.held.send_replace(held);
    }

    /// Returns when `count` lookups are running.
    pub(crate) async fn lookups_running(&self, count: usize) {
        self.lookups.running.subscribe().wait_for(|running| *running == count).await.unwrap();
    }

    /// Returns the most lookups that ran at the same time.
    pub(crate) fn most_lookups(&self) -> usize {
        *self.lookups.most.lock().unwrap()
    }

    /// Sets the addresses of a name.
    pub(crate) fn name(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.names.lock().unwrap().insert(name.to_owned(), addresses);
    }

    /// Adds a host at a public address.
    pub(crate) async fn host(&self, address: &str) -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.hosts.lock().unwrap().insert(address.parse().unwrap(), listener.local_addr().unwrap());
        listener
    }

    /// Makes an address belong to the proxy's machine.
    pub(crate) fn own(&self, address: &str) {
        self.own.lock().unwrap().push(address.parse().unwrap());
    }

    /// Runs a host until the end of the test.
    pub(crate) fn run(&self, host: impl Future<Output = ()> + Send + 'static) {
        self.tasks.lock().unwrap().spawn(host);
    }

    /// Returns the names that were looked up so far.
    pub(crate) fn looked_up(&self) -> Vec<String> {
        self.looked_up.lock().unwrap().clone()
    }

    /// Returns the addresses that were connected to so far.
    pub(crate) fn called(&self) -> Vec<String> {
        self.called.lock().unwrap().iter().map(ToString::to_string).collect()
    }
}

impl Internet for TestNetwork {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        self.looked_up.lock().unwrap().push(name.to_owned());
        let found = self.names.lock().unwrap().get(name).cloned();
        Box::pin(async move {
            self.lookups.running.send_modify(|running| {
                *running += 1;
                let mut most = self.lookups.most.lock().unwrap();
                *most = (*running).max(*most);
            });
            self.lookups.held.subscribe().wait_for(|held| !held).await.unwrap();
            self.lookups.running.send_modify(|running| *running -= 1);
            found.ok_or_else(|| io::Error::other("no such name"))
        })
    }

    fn is_local(&self, address: IpAddr) -> bool {
        self.own.lock().unwrap().contains(&address)
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>> {
        self.called.lock().unwrap().push(address);
        let host = self.hosts.lock().unwrap().get(&address).copied();
        Box::pin(async move {
            let host = host.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionRefused))?;
            TcpStream::connect(host).await
        })
    }
}
