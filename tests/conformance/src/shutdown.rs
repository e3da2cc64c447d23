//! The end of a session, by a crash or by termination.

use std::time::{Duration, Instant};

use protocol::{EventBody, SessionEndReason, TerminatedBy};

use crate::model_script::prompts;
use crate::scenario_session::{Scenario, UserReply};

/// Time limit for the termination of all processes.
const TERMINATION_LIMIT: Duration = Duration::from_secs(1);
const ATTEMPTS: usize = 3;

pub(crate) async fn crash_is_reported(scenario: Scenario) {
    let session = scenario.open().await;
    let turn = session.turn(prompts::CRASH, UserReply::Yes).await;
    let ended = session.until(0, |event| matches!(event, EventBody::SessionEnded(_))).await;
    let EventBody::SessionEnded(ended) = ended.draft.body else { unreachable!() };
    assert_eq!((ended.reason, ended.terminated_by), (SessionEndReason::Error, TerminatedBy::Agent), "{turn:?}");
    session.sessions.close_all().await;
    session.check_events();
}

pub(crate) async fn termination_kills_every_process(scenario: Scenario) {
    let mut took = Vec::new();
    // A busy machine may be slow once; an agent that must be waited for is slow every time.
    for _ in 0..ATTEMPTS {
        took.push(measure_termination(scenario.again()).await);
        if took.last() < Some(&TERMINATION_LIMIT) {
            return;
        }
    }
    panic!("it took {took:?}");
}

/// Returns the time that it takes to terminate an agent while it streams. Afterwards none of its processes exists.
async fn measure_termination(scenario: Scenario) -> Duration {
    let session = scenario.open().await;
    let turn = session.turn(prompts::COMMAND, UserReply::Yes).await;
    let words = turn.text();
    let start = words.find("pid:[").unwrap_or_else(|| panic!("no namespace in {turn:?}"));
    let namespace: String = words[start..].chars().take_while(|letter| *letter != ']').collect();
    let sent = session.send(prompts::SLOW).await;
    session.until(sent.sequence, |event| matches!(event, EventBody::ItemDelta(_))).await;
    assert!(processes(&namespace) > 0, "an agent runs in {namespace}");
    let dead = tokio::task::spawn_blocking({
        let (namespace, started) = (namespace.clone(), Instant::now());
        move || {
            while processes(&namespace) > 0 {
                testkit::poll_pause();
            }
            started.elapsed()
        }
    });
    session.sessions.terminate(&session.id).await.unwrap();
    let took = dead.await.unwrap();
    let last = session.events().pop().unwrap();
    assert!(matches!(last.draft.body, EventBody::SessionEnded(_)), "{last:?}");
    session.sessions.close_all().await;
    session.check_events();
    took
}

/// Returns the number of processes in a PID namespace.
fn processes(namespace: &str) -> usize {
    let namespace = format!("{namespace}]");
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.path().join("ns/pid")).ok());
    links.filter(|link| link.to_str() == Some(&namespace)).count()
}
