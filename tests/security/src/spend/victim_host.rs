//! The attacked side: a separate host process with a real gateway or a real egress proxy, whose memory and disk space
//! are measured from outside.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use egress::{Egress, EgressIdentity, EgressLimits, LivePolicy, ProxyCredentials};
use gateway::{
    Gateway, GatewayConfig, GatewayIdentity, GatewayLimits, ModelPrice, ModelScript, NoTurn, PriceTable,
    ScriptedUpstream, SessionToken, TokenRates, Upstream, VendorConfig, VendorKind, VendorUpstream,
};
use policy::{BaseLayer, CeilingLayer, PolicySource};
use protocol::SessionId;
use sandbox::{Sandbox, SandboxPort};
use session::HostBudget;
use store::{
    DataDir, Durability, FileBodyStore, FileJournal, FreeSpaceFloor, SqliteLedger, StorageLimits, StorageMeter,
    SystemClock,
};

use crate::attack::Place;
use crate::stage::Stage;

/// The token of the attacked session. The attacker is in that session, so it knows the token.
pub(super) const TOKEN: &str = "viv-token-of-the-attacked-session";

/// The session of the attacker.
const SESSION: &str = "attacked";

/// Returns a small budget, or for the control one without effect.
pub(super) fn budget(place: Place) -> HostBudget {
    let floor = FreeSpaceFloor { bytes: 0, percent: 0 };
    match place {
        Place::Inside => HostBudget {
            in_flight_bytes: 8 << 20,
            body_idle: Duration::from_millis(500),
            body_total: Duration::from_secs(2),
            connections: 32,
            pending_requests: 4,
            storage: StorageLimits { journal_bytes: 1 << 20, body_bytes: 2 << 20, free_space: floor },
            key_journal_bytes: 1 << 20,
            sessions: 16,
            sessions_per_token: 4,
        },
        Place::Outside => HostBudget {
            in_flight_bytes: 1 << 40,
            body_idle: Duration::from_secs(600),
            body_total: Duration::from_secs(600),
            connections: 10_000,
            pending_requests: 10_000,
            storage: StorageLimits { journal_bytes: 1 << 40, body_bytes: 1 << 40, free_space: floor },
            key_journal_bytes: 1 << 40,
            sessions: 10_000,
            sessions_per_token: 10_000,
        },
    }
}

/// The part of a host that is attacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Victim {
    Gateway,
    /// A gateway whose upstream has another API. The upstream cannot be reached.
    Translator,
    Egress,
}

impl Victim {
    fn word(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Translator => "translator",
            Self::Egress => "egress",
        }
    }
}

/// A running host process.
pub(super) struct VictimHost {
    child: Child,
    data: PathBuf,
    peak_before: u64,
}

impl VictimHost {
    /// Starts a host that serves a port of `sandbox`.
    pub(super) fn start(stage: &Stage, sandbox: &dyn Sandbox, victim: Victim, place: Place, data: &Path) -> Self {
        let port = if victim == Victim::Egress { SandboxPort::Egress } else { SandboxPort::Models };
        let listener = sandbox.take_listener(port).expect("listener");
        let budget = if place == Place::Inside { "budget" } else { "none" };
        let mut child = Command::new(&stage.program)
            .args(["__host", victim.word(), budget])
            .arg(data)
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::piped())
            .spawn()
            .expect("host");
        let mut ready = String::new();
        BufReader::new(child.stdout.take().expect("stdout")).read_line(&mut ready).expect("a word");
        assert_eq!(ready.trim(), "ready", "the host did not start");
        let mut host = Self { child, data: data.to_owned(), peak_before: 0 };
        host.peak_before = host.peak();
        host
    }

    /// Returns by how many bytes the largest resident size has grown.
    pub(super) fn memory(&self) -> u64 {
        self.peak().saturating_sub(self.peak_before)
    }

    /// Returns the number of open descriptors.
    pub(super) fn descriptors(&self) -> u64 {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("descriptors").count() as u64
    }

    /// Returns the bytes of the session's journal.
    pub(super) fn journal(&self) -> u64 {
        bytes_below(&self.data.join("trajectory"))
    }

    /// Returns the bytes of all stored bodies.
    pub(super) fn bodies(&self) -> u64 {
        bytes_below(&self.data.join("bodies"))
    }

    fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    }
}

impl Drop for VictimHost {
    fn drop(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }
}

/// Returns the bytes of all files below `directory`.
pub(super) fn bytes_below(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    entries
        .map(|path| if path.is_dir() { bytes_below(&path) } else { path.metadata().map_or(0, |file| file.len()) })
        .sum()
}

/// Serves the listener on standard input until the process is killed.
pub(crate) fn live(mut arguments: impl Iterator<Item = String>) {
    let (role, budget_word) = (arguments.next().expect("role"), arguments.next().expect("budget"));
    let data = DataDir::open(arguments.next().expect("directory")).expect("data directory");
    let place = if budget_word == "budget" { Place::Inside } else { Place::Outside };
    let listener = TcpListener::from(std::io::stdin().as_fd().try_clone_to_owned().expect("listener"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("runtime");
    runtime.block_on(async {
        let session = AttackedSession::open(&data, budget(place));
        if role == "egress" {
            let _attachment = session.serve_egress(listener);
            println!("ready");
            std::future::pending::<()>().await;
        } else {
            let upstream = if role == "translator" { translating_upstream() } else { scripted_upstream() };
            let _attachment = session.serve_models(&data, listener, upstream);
            println!("ready");
            std::future::pending::<()>().await;
        }
    });
}

fn scripted_upstream() -> Arc<dyn Upstream> {
    let script = "version: 1\nrules:\n  - answer: [text: short]\n";
    Arc::new(ScriptedUpstream::new(ModelScript::parse(script).expect("script")))
}

/// An upstream with another API than the attacker's.
fn translating_upstream() -> Arc<dyn Upstream> {
    let mut config = VendorConfig::new("chat", VendorKind::OpenaiCompatible, "http://127.0.0.1:9");
    config.retries = 0;
    Arc::new(VendorUpstream::new(config).expect("upstream"))
}

fn prices() -> PriceTable {
    let rates = TokenRates { input: 1, output: 1, ..TokenRates::default() };
    PriceTable::default().with_price("m", ModelPrice::flat(rates))
}

struct AttackedSession {
    id: SessionId,
    journal: Arc<FileJournal>,
    storage: Arc<StorageMeter>,
    budget: HostBudget,
}

impl AttackedSession {
    fn open(data: &DataDir, budget: HostBudget) -> Self {
        let id = SessionId::new(SESSION).expect("id");
        let storage = Arc::new(StorageMeter::new(data.root().to_owned(), budget.storage));
        let journal = FileJournal::open(data.journal(&id), id.clone(), Arc::new(SystemClock)).expect("journal").journal;
        Self { id, journal: Arc::new(journal.with_storage_meter(storage.clone())), storage, budget }
    }

    fn serve_models(
        self,
        data: &DataDir,
        listener: TcpListener,
        upstream: Arc<dyn Upstream>,
    ) -> gateway::GatewayAttachment {
        let ledger = SqliteLedger::claim(data, Durability::Normal, Arc::new(SystemClock)).expect("ledger").ledger;
        let identity = GatewayIdentity {
            session: self.id,
            token: SessionToken::from_text(TOKEN),
            account: "a".into(),
            user: None,
            key: None,
            agent: None,
            run: "r".into(),
            attempt: 1,
            journal: self.journal,
            bodies: Arc::new(FileBodyStore::new(data).with_storage_meter(Some(self.storage))),
            turn: Arc::new(NoTurn),
            upstream,
            policy: None,
            budgets: Vec::new(),
            limits: self.budget.gateway_limits(GatewayLimits::default()),
            in_flight: base::ByteBudget::new(self.budget.in_flight_bytes),
        };
        let config = GatewayConfig { prices: prices(), ledger: Arc::new(ledger), budgets: Vec::new() };
        Gateway::new(config).attach(listener, identity).expect("gateway")
    }

    fn serve_egress(self, listener: TcpListener) -> egress::EgressAttachment {
        let source = PolicySource::new("attack", "version: 1\nnet: {enabled: true, allowlist: [files.example.com]}\n");
        let base = BaseLayer::read(&source).expect("policy");
        let policy = policy::effective(&CeilingLayer::built_in().expect("ceiling"), &base, &[]);
        // Without the window in which repeats are counted, every denial is a record of its own.
        let limits = EgressLimits { repeat_window: Duration::ZERO, ..EgressLimits::default() };
        let identity = EgressIdentity {
            session: self.id,
            journal: self.journal,
            turn: Arc::new(|| None),
            policy: LivePolicy::new(policy),
            credentials: ProxyCredentials::default(),
            dns: None,
            limits,
            in_flight: base::ByteBudget::new(self.budget.in_flight_bytes),
        };
        Egress::default().attach(listener, identity).expect("proxy")
    }
}
