//! The gateway as a process of its own.

use std::{
    io::Write,
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{ExitCode, Stdio},
    sync::Arc,
};

use gateway::{
    CurrentTurn, Gateway, GatewayConfig, Identity, Limits, Price, Prices, Rates, SessionToken, Vendor, VendorConfig,
    VendorKind,
};
use protocol::SessionId;
use store::{Bodies, DataDir, Durability, FileJournal, SqliteLedger, SystemClock};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, Command},
};

use crate::RATES;

/// The first argument of a test binary that is to be a gateway.
pub(crate) const WORD: &str = "__gateway";

/// A gateway in a process that can be killed.
pub(crate) struct Host {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    child: Child,
}

impl Host {
    /// Starts one on `directory`; it has put the ledger in order when this returns.
    pub(crate) async fn start(directory: &Path, url: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(WORD)
            .arg(directory)
            .arg(url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).await.unwrap();
        let (address, token) = line.trim().split_once(' ').unwrap();
        Self { address: address.parse().unwrap(), token: token.to_owned(), child }
    }

    /// SIGKILL.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Asks it to leave, and waits until it has.
    pub(crate) async fn leave(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().await.unwrap().success());
    }
}

/// Is a gateway until its standard input ends.
pub(crate) fn live(directory: &Path, url: &str) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(serve(DataDir::open(directory).unwrap(), url));
    ExitCode::SUCCESS
}

async fn serve(directory: DataDir, url: &str) {
    let opened = SqliteLedger::claim(&directory, Durability::Normal, Arc::new(SystemClock)).unwrap();
    let rates = Rates { input: RATES.0.cast_signed(), output: RATES.1.cast_signed(), ..Rates::default() };
    let prices = Prices::default().with("m", Price::flat(rates));
    let gateway = Gateway::new(GatewayConfig { prices, ledger: Arc::new(opened.ledger), budgets: Vec::new() });
    tokio::task::block_in_place(|| gateway.settle_unknown(&directory)).unwrap();
    let session = SessionId::new("s1").unwrap();
    let journal = FileJournal::open(directory.journal(&session), session.clone(), Arc::new(SystemClock)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (token, text) = SessionToken::issue();
    let identity = Identity {
        run: session.to_string(),
        session,
        token,
        account: "acme".into(),
        user: None,
        key: None,
        agent: None,
        attempt: 1,
        journal: Arc::new(journal.journal),
        bodies: Arc::new(Bodies::new(&directory)),
        turn: CurrentTurn::default(),
        upstream: Arc::new(Vendor::new(VendorConfig::new("stub", VendorKind::Litellm, url)).unwrap()),
        policy: None,
        budgets: Vec::new(),
        limits: Limits::default(),
    };
    let attachment = gateway.attach(listener, identity).unwrap();
    println!("{address} {text}");
    std::io::stdout().flush().unwrap();
    tokio::io::stdin().read_to_end(&mut Vec::new()).await.unwrap();
    attachment.close().await;
}
