//! The end of a session, by itself or by command.

use std::time::{Duration, Instant};

use protocol::{EventBody, SessionEndReason, TerminatedBy};

use crate::script::say;
use crate::stage::{Answer, World};

/// Whoever is told to end is gone after this.
const DEAD: Duration = Duration::from_secs(1);
const ATTEMPTS: usize = 3;

pub(crate) async fn a_crash_is_told(world: World) {
    let stage = world.open().await;
    let turn = stage.turn(say::KILL, Answer::Yes).await;
    let ended = stage.until(0, |event| matches!(event, EventBody::SessionEnded(_))).await;
    let EventBody::SessionEnded(ended) = ended.draft.body else { unreachable!() };
    assert_eq!((ended.reason, ended.terminated_by), (SessionEndReason::Error, TerminatedBy::Agent), "{turn:?}");
    stage.sessions.close_all().await;
    stage.look_back();
}

pub(crate) async fn every_process_is_dead_when_it_is_terminated(world: World) {
    let mut took = Vec::new();
    // A machine with others at work may be slow once; an agent that must be waited for is slow every time.
    for _ in 0..ATTEMPTS {
        took.push(time_of_death(world.again()).await);
        if took.last() < Some(&DEAD) {
            return;
        }
    }
    panic!("it took {took:?}");
}

/// How long it takes to end an agent that talks; when this returns none of its processes is left.
async fn time_of_death(world: World) -> Duration {
    let stage = world.open().await;
    let turn = stage.turn(say::COMMAND, Answer::Yes).await;
    let words = turn.words();
    let start = words.find("pid:[").unwrap_or_else(|| panic!("no namespace in {turn:?}"));
    let namespace: String = words[start..].chars().take_while(|letter| *letter != ']').collect();
    let sent = stage.send(say::SLOWLY).await;
    stage.until(sent.sequence, |event| matches!(event, EventBody::ItemDelta(_))).await;
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
    stage.sessions.terminate(&stage.id).await.unwrap();
    let took = dead.await.unwrap();
    let last = stage.events().pop().unwrap();
    assert!(matches!(last.draft.body, EventBody::SessionEnded(_)), "{last:?}");
    stage.sessions.close_all().await;
    stage.look_back();
    took
}

/// How many processes of a PID namespace there are.
fn processes(namespace: &str) -> usize {
    let namespace = format!("{namespace}]");
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.path().join("ns/pid")).ok());
    links.filter(|link| link.to_str() == Some(&namespace)).count()
}
