//! The end of a session, by itself or by command.

use std::time::{Duration, Instant};

use protocol::{EventBody, SessionEndReason, TerminatedBy};

use crate::model_script::say;
use crate::scenario_session::{UserReply, Scenario};

/// Whoever is told to end is gone after this.
const DEAD: Duration = Duration::from_secs(1);
const ATTEMPTS: usize = 3;

pub(crate) async fn crash_is_reported(scenario: Scenario) {
    let session = scenario.open().await;
    let turn = session.turn(say::KILL, UserReply::Yes).await;
    let ended = session.until(0, |event| matches!(event, EventBody::SessionEnded(_))).await;
    let EventBody::SessionEnded(ended) = ended.draft.body else { unreachable!() };
    assert_eq!((ended.reason, ended.terminated_by), (SessionEndReason::Error, TerminatedBy::Agent), "{turn:?}");
    session.sessions.close_all().await;
    session.look_back();
}

pub(crate) async fn termination_kills_every_process(scenario: Scenario) {
    let mut took = Vec::new();
    // A machine with others at work may be slow once; an agent that must be waited for is slow every time.
    for _ in 0..ATTEMPTS {
        took.push(time_of_death(scenario.again()).await);
        if took.last() < Some(&DEAD) {
            return;
        }
    }
    panic!("it took {took:?}");
}

/// How long it takes to end an agent that talks; when this returns none of its processes is left.
async fn time_of_death(scenario: Scenario) -> Duration {
    let session = scenario.open().await;
    let turn = session.turn(say::COMMAND, UserReply::Yes).await;
    let words = turn.words();
    let start = words.find("pid:[").unwrap_or_else(|| panic!("no namespace in {turn:?}"));
    let namespace: String = words[start..].chars().take_while(|letter| *letter != ']').collect();
    let sent = session.send(say::SLOWLY).await;
    session.until(sent.sequence, |event| matches!(event, EventBody::ItemDelta(_))).await;
    assert!(processes(&namespace) > 0, "an agent runs in {namespace}");
    let dead = tokio::task::spawn_blocking({
        let (namespace, asked) = (namespace.clone(), Instant::now());
        move || {
            while processes(&namespace) > 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
            asked.elapsed()
        }
    });
    session.sessions.terminate(&session.id).await.unwrap();
    let took = dead.await.unwrap();
    let last = session.events().pop().unwrap();
    assert!(matches!(last.draft.body, EventBody::SessionEnded(_)), "{last:?}");
    session.sessions.close_all().await;
    session.look_back();
    took
}

/// How many processes of a PID namespace there are.
fn processes(namespace: &str) -> usize {
    let namespace = format!("{namespace}]");
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.path().join("ns/pid")).ok());
    links.filter(|link| link.to_str() == Some(&namespace)).count()
}
