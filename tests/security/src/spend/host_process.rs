//! Memory, disk, connections and sessions of the host process.
//!
//! Each attack runs against a host with a small host budget, and as its control against a host whose budget has no
//! effect. The host is measured, not the attacker.

use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use protocol::{CreateSession, EventBody, SessionId};
use sandbox::{OutputSink, StandardStreams};
use session::{SessionOptions, Sessions, UserMessage};
use store::JournalTail;
use testkit::SessionHostFixture;
use tokio::io::AsyncWrite;

use super::victim_host::{Victim, VictimHost, budget, bytes_below};
use crate::attack::{Attack, Group::Spend, Place, Verdict, Walls, scenario};
use crate::stage::{Stage, command};

/// More memory than a host with the small budget may take, buffers and code included.
const MUCH_MEMORY: u64 = 56 << 20;

const UNLIMITED: &str = "by a host without a budget";

pub(crate) fn attacks() -> Vec<Attack> {
    let attack = |name, what, run| scenario(Spend, name, what, UNLIMITED, run);
    vec![
        attack("spend_stalled_bodies", "send many bodies but for their last byte", |stage, place| {
            against_memory(stage, place, "spend_stalled_bodies")
        }),
        attack("spend_endless_chunks", "send many bodies that never end", |stage, place| {
            against_memory(stage, place, "spend_endless_chunks")
        }),
        attack("spend_connections", "open connections without end", |stage, place| {
            let measured = against_gateway(stage, place, "spend_connections", VictimHost::descriptors);
            Verdict::when(measured > 150, format!("{measured} descriptors of the host"))
        }),
        attack("spend_headers", "send heads of requests that never end", |stage, place| {
            let measured = against_gateway(stage, place, "spend_headers", VictimHost::memory);
            Verdict::when(measured > 10 << 20, format!("{} MiB more memory of the host", measured >> 20))
        }),
        attack("spend_nested_json", "send calls whose JSON takes much more memory than its text", |stage, place| {
            let measured = against(stage, place, Victim::Translator, "spend_nested_json", VictimHost::memory);
            Verdict::when(measured > MUCH_MEMORY, format!("{} MiB more memory of the host", measured >> 20))
        }),
        attack("spend_journal_by_calls", "fill the journal with model calls", |stage, place| {
            let measured = against_gateway(stage, place, "spend_journal_by_calls", VictimHost::journal);
            Verdict::when(measured > 3 << 20, format!("{measured} bytes of journal"))
        }),
        attack("spend_stored_bodies", "fill the disk with bodies of model calls", |stage, place| {
            let measured = against_gateway(stage, place, "spend_stored_bodies", VictimHost::bodies);
            Verdict::when(measured > 4 << 20, format!("{measured} bytes of bodies"))
        }),
        attack("spend_journal_by_denials", "fill the journal with denied connections", |stage, place| {
            let measured = against(stage, place, Victim::Egress, "spend_journal_by_denials", VictimHost::journal);
            Verdict::when(measured > 2 << 20, format!("{measured} bytes of journal"))
        }),
        attack("spend_journal_by_output", "fill the journal with output of the agent", journal_by_output),
        scenario(
            Spend,
            "spend_stderr",
            "print to stderr without end",
            "by a host that keeps what a command prints",
            output_to_stderr,
        ),
        attack("spend_permission_requests", "request permissions without end", permission_requests),
        attack("spend_sessions", "open sessions without end with one token", sessions_of_a_token),
        attack("spend_exec_output", "print without end through an attached command", exec_output),
    ]
}

fn against_memory(stage: &Stage, place: Place, name: &str) -> Verdict {
    let measured = against_gateway(stage, place, name, VictimHost::memory);
    Verdict::when(measured > MUCH_MEMORY, format!("{} MiB more memory of the host", measured >> 20))
}

fn against_gateway(stage: &Stage, place: Place, name: &str, measure: fn(&VictimHost) -> u64) -> u64 {
    against(stage, place, Victim::Gateway, name, measure)
}

/// Runs a flood from inside a sandbox against a host process, and returns its measure.
fn against(stage: &Stage, place: Place, victim: Victim, name: &str, measure: fn(&VictimHost) -> u64) -> u64 {
    let scene = stage.scene();
    let data = tempfile::tempdir_in(&stage.root).expect("data directory");
    let sandbox = stage.sandbox(Walls::Usual, &scene.workspace()).expect("sandbox");
    let host = VictimHost::start(stage, &*sandbox, victim, place, data.path());
    let mut flood = command(&["__flood", name]);
    flood.timeout = Some(std::time::Duration::from_secs(90));
    // The connections must be open when the host is measured, so the flood is measured while it waits as well.
    let most = AtomicU64::new(0);
    let measured = || {
        most.fetch_max(measure(&host), Ordering::Relaxed);
    };
    let result = stage.runtime.block_on(async {
        let mut no_output = |_, _: &[u8]| {};
        let mut running = Box::pin(sandbox::run(&*sandbox, flood, &mut no_output));
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(50));
        loop {
            tokio::select! {
                result = &mut running => return result.expect("run"),
                _ = ticks.tick() => measured(),
            }
        }
    });
    assert_eq!(result.exit.code, Some(0), "{}", String::from_utf8_lossy(&result.stderr));
    measured();
    drop(host);
    stage.destroy(&*sandbox);
    most.into_inner()
}

/// Runs this program as the mock agent of a session.
pub(crate) fn act_as_agent(arguments: impl Iterator<Item = String>) -> ExitCode {
    let settings = mock::MockSettings::parse(arguments, |name| std::env::var(name).ok()).expect("settings");
    mock::main(settings, std::io::stdin(), std::io::stdout())
}

/// A session host in this process.
struct Host {
    directory: tempfile::TempDir,
    sessions: Sessions,
}

impl Host {
    fn open(stage: &Stage, place: Place) -> Self {
        let directory = tempfile::tempdir_in(&stage.root).expect("directory");
        let _entered = stage.runtime.enter();
        let sessions = SessionHostFixture::new(directory.path()).budget(budget(place)).open();
        Self { directory, sessions }
    }

    async fn create(&self, name: &str) -> Result<SessionId, session::SessionError> {
        let request = CreateSession { agent: "mock".to_owned(), ..CreateSession::default() };
        let options = SessionOptions { token: Some("tok_attacker".to_owned()), ..SessionOptions::default() };
        let id = SessionId::new(name).expect("id");
        self.sessions.create(id, request, options).await.map(|info| info.session_id)
    }

    /// Runs one turn to its end.
    async fn turn(&self, id: &SessionId, text: &str) {
        self.sessions.send(id, UserMessage::text(text)).await.expect("accepted");
        let mut tail = JournalTail::new(self.sessions.journal(id).expect("journal"), 0);
        loop {
            let events = tail.next(100).await.expect("events");
            if events.iter().any(|event| matches!(event.draft.body, EventBody::TurnEnded(_))) {
                return;
            }
        }
    }
}

fn journal_by_output(stage: &Stage, place: Place) -> Verdict {
    let host = Host::open(stage, place);
    stage.runtime.block_on(async {
        let id = host.create("flood").await.expect("session");
        host.turn(&id, "/flood 20000").await;
        host.sessions.close_all().await;
    });
    let bytes = bytes_below(&host.directory.path().join("data/trajectory"));
    Verdict::when(bytes > 3 << 20, format!("{bytes} bytes of journal"))
}

fn output_to_stderr(stage: &Stage, place: Place) -> Verdict {
    const LINES: usize = 20_000;
    let kept = if place == Place::Outside {
        let scene = stage.scene();
        let sandbox = stage.sandbox(Walls::Usual, &scene.workspace()).expect("sandbox");
        let mut spec = command(&[]);
        let script = format!("head -c {} /dev/zero >&2", LINES * 1000);
        spec.command = ["sh", "-c", &script].map(str::to_owned).to_vec();
        let mut no_output = |_, _: &[u8]| {};
        let result = stage.runtime.block_on(sandbox::run(&*sandbox, spec, &mut no_output)).expect("run");
        stage.destroy(&*sandbox);
        result.stderr.len() as u64
    } else {
        let host = Host::open(stage, place);
        stage.runtime.block_on(async {
            let id = host.create("flood").await.expect("session");
            host.turn(&id, &format!("/stderr {LINES}")).await;
            // The end of the agent records what is kept.
            host.sessions.send(&id, UserMessage::text("/exit 3")).await.expect("accepted");
            let mut tail = JournalTail::new(host.sessions.journal(&id).expect("journal"), 0);
            let ended = loop {
                let events = tail.next(100).await.expect("events");
                let ended = events.into_iter().find_map(|event| match event.draft.body {
                    EventBody::SessionEnded(ended) => Some(ended),
                    _ => None,
                });
                if let Some(ended) = ended {
                    break ended;
                }
            };
            let lines = ended.stderr.and_then(|stderr| stderr.total_lines);
            assert_eq!(lines, Some(LINES as u64), "the host did not read the flood");
            host.sessions.close_all().await;
        });
        bytes_below(&host.directory.path().join("data/trajectory"))
    };
    Verdict::when(kept > 3 << 20, format!("{kept} bytes kept"))
}

fn permission_requests(stage: &Stage, place: Place) -> Verdict {
    const WANTED: usize = 100;
    let host = Host::open(stage, place);
    let pending = stage.runtime.block_on(async {
        let id = host.create("flood").await.expect("session");
        host.sessions.send(&id, UserMessage::text(format!("/permissions {WANTED}"))).await.expect("accepted");
        let mut tail = JournalTail::new(host.sessions.journal(&id).expect("journal"), 0);
        let (mut requested, mut resolved) = (0, 0);
        while requested < WANTED {
            for event in tail.next(1000).await.expect("events") {
                requested += usize::from(matches!(event.draft.body, EventBody::PermissionRequested(_)));
                resolved += usize::from(matches!(event.draft.body, EventBody::PermissionResolved(_)));
            }
        }
        host.sessions.close_all().await;
        requested - resolved
    });
    Verdict::when(pending > WANTED / 2, format!("{pending} of {WANTED} requests wait for an answer"))
}

fn sessions_of_a_token(stage: &Stage, place: Place) -> Verdict {
    const WANTED: usize = 12;
    let host = Host::open(stage, place);
    let opened = stage.runtime.block_on(async {
        let mut opened = 0;
        for number in 0..WANTED {
            opened += usize::from(host.create(&format!("s{number}")).await.is_ok());
        }
        host.sessions.close_all().await;
        opened
    });
    Verdict::when(opened == WANTED, format!("{opened} of {WANTED} sessions"))
}

/// A sink that counts its bytes.
struct CountingSink(Arc<AtomicU64>);

impl AsyncWrite for CountingSink {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn exec_output(stage: &Stage, place: Place) -> Verdict {
    const LIMIT: usize = 1 << 20;
    let scene = stage.scene();
    let sandbox = stage.sandbox(Walls::Usual, &scene.workspace()).expect("sandbox");
    let mut spec = command(&[]);
    spec.command = ["head", "-c", "33554432", "/dev/zero"].map(str::to_owned).to_vec();
    spec.output_limit = (place == Place::Inside).then_some(LIMIT);
    let printed = Arc::new(AtomicU64::new(0));
    let sink = || OutputSink { to: Box::new(CountingSink(Arc::clone(&printed))), filter: None };
    let streams = StandardStreams { input: Box::new(tokio::io::empty()), output: sink(), errors: sink(), window: None };
    let result = stage.runtime.block_on(sandbox::attach(&*sandbox, spec, streams)).expect("run");
    stage.destroy(&*sandbox);
    let printed = printed.load(Ordering::Relaxed);
    assert_eq!(result.output_exceeded, place == Place::Inside);
    Verdict::when(printed > LIMIT as u64, format!("{printed} bytes printed"))
}
