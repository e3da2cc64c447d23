//! Filtered lists of the sessions index, compared with a scan of all sessions.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;
use protocol::{SessionId, SessionInfo, SessionStatus};
use store::{
    Clock as _, DataDir, LabelFilter, NewSession, ProcessOwner, SessionFilter, SessionIndex, SessionOutcome,
    SessionPatch, SessionTally,
};
use support::ManualClock;

const WORDS: [&str; 5] = ["Fix the parser", "100% of_it", "ab", "größe\\n", "say \"hi\""];

/// A session as the test creates it.
#[derive(Debug, Clone)]
struct Made {
    agent: &'static str,
    account: Option<&'static str>,
    user: Option<&'static str>,
    team: Option<&'static str>,
    title: Option<&'static str>,
    prompt: Option<&'static str>,
    status: SessionStatus,
}

fn made() -> impl Strategy<Value = Made> {
    let maybe = |words: &'static [&'static str]| prop::option::of(select(words));
    let people = (maybe(&["acme", "initech"]), maybe(&["ann", "bob"]), maybe(&["red", "blue"]));
    let texts = (maybe(&WORDS), maybe(&WORDS));
    (select(&["claude", "mock"][..]), people, texts, select(&SessionStatus::ALL[..])).prop_map(
        |(agent, (account, user, team), (title, prompt), status)| Made {
            agent,
            account,
            user,
            team,
            title,
            prompt,
            status,
        },
    )
}

fn filter() -> impl Strategy<Value = SessionFilter> {
    let maybe = |words: &'static [&'static str]| prop::option::of(select(words).prop_map(str::to_owned));
    let label = (select(&["team", "unset"][..]), maybe(&["red", "blue"]))
        .prop_map(|(key, value)| LabelFilter { key: key.to_owned(), value });
    let text = prop::option::of(prop_oneof![
        select(&["pars", "PARS", "%", "_it", "a", "öße", "\\", "\"hi\"", "-1", "nothing"][..]).prop_map(str::to_owned),
        "[a-f ]{1,4}"
    ]);
    let times = (prop::option::of(0..45_i64), prop::option::of(0..45_i64));
    let people = (maybe(&["claude", "mock"]), maybe(&["acme"]), maybe(&["ann"]));
    let labels = prop::collection::vec(label, 0..3);
    (prop::collection::vec(select(&SessionStatus::ALL[..]), 0..3), people, labels, times, text).prop_map(
        |(status, (agent, account, user), labels, (since, until), text)| SessionFilter {
            status,
            agent,
            account,
            user,
            labels,
            since_ms: since.map(|seconds| seconds * 1_000),
            until_ms: until.map(|seconds| seconds * 1_000),
            text,
        },
    )
}

fn admits(filter: &SessionFilter, info: &SessionInfo) -> bool {
    let is = |wanted: &Option<String>, value: &Option<String>| wanted.is_none() || wanted == value;
    let texts = [Some(info.session_id.to_string()), info.name.clone(), info.title.clone(), info.last_prompt.clone()];
    (filter.status.is_empty() || filter.status.contains(&info.status))
        && is(&filter.agent, &Some(info.agent.clone()))
        && is(&filter.account, &info.account)
        && is(&filter.user, &info.user)
        && filter.labels.iter().all(|label| {
            info.labels.get(&label.key).is_some_and(|value| label.value.as_ref().is_none_or(|wanted| wanted == value))
        })
        && filter.since_ms.is_none_or(|since| info.created_at >= since)
        && filter.until_ms.is_none_or(|until| info.created_at < until)
        && filter.text.as_ref().is_none_or(|text| {
            let text = text.to_ascii_lowercase();
            texts.iter().flatten().any(|found| found.to_ascii_lowercase().contains(&text))
        })
}

fn create(index: &SessionIndex, owner: &ProcessOwner, clock: &ManualClock, number: usize, made: &Made) {
    clock.set(i64::try_from(number).unwrap());
    let id = SessionId::new(format!("s-{number}")).unwrap();
    let new = NewSession {
        account: made.account.map(str::to_owned),
        user: made.user.map(str::to_owned),
        title: made.title.map(str::to_owned),
        labels: made.team.map(|team| ("team".to_owned(), team.to_owned())).into_iter().collect(),
        ..NewSession::new(id.clone(), made.agent, owner.id().clone())
    };
    index.create(&new).unwrap();
    let outcome = (made.status == SessionStatus::Ended).then_some(SessionOutcome::Completed);
    let last_prompt = made.prompt.map(str::to_owned);
    index.update_unsynced(&id, &SessionPatch { outcome, last_prompt, ..SessionPatch::default() }).unwrap();
    if outcome.is_none() {
        index.set_status(&id, made.status, clock.now().as_millisecond()).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn filtered_list_is_the_scan_of_all_sessions_page_by_page(
        all in prop::collection::vec(made(), 1..40),
        filters in prop::collection::vec(filter(), 40),
        limit in 1..7_usize,
    ) {
        let temporary = tempfile::tempdir().unwrap();
        let directory = DataDir::open(temporary.path()).unwrap();
        let (owner, clock) = (ProcessOwner::claim(&directory).unwrap(), ManualClock::at(0));
        let index = SessionIndex::open(&directory, clock.clone()).unwrap();
        for (number, made) in all.iter().enumerate() {
            create(&index, &owner, &clock, number, made);
        }
        let everything = index.list(None, usize::MAX).unwrap().sessions;
        prop_assert_eq!(everything.len(), all.len());
        for filter in filters {
            let wanted: Vec<_> = everything.iter().filter(|record| admits(&filter, &record.info)).collect();
            let (mut found, mut cursor) = (Vec::new(), None);
            loop {
                let page = index.list_filtered(&filter, cursor, limit).unwrap();
                prop_assert!(page.sessions.len() <= limit);
                found.extend(page.sessions);
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            prop_assert_eq!(found.iter().collect::<Vec<_>>(), wanted, "{:?}", filter);
        }
    }
}

#[test]
fn session_of_a_dead_process_is_asleep_and_named_if_it_was_busy() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = DataDir::open(temporary.path()).unwrap();
    let clock = ManualClock::at(1);
    let index = SessionIndex::open(&directory, clock.clone()).unwrap();
    let owner = ProcessOwner::claim(&directory).unwrap();
    let idle = Made {
        agent: "mock",
        account: None,
        user: None,
        team: None,
        title: None,
        prompt: None,
        status: SessionStatus::Idle,
    };
    create(&index, &owner, &clock, 1, &idle);
    create(&index, &owner, &clock, 2, &Made { status: SessionStatus::Waiting, ..idle.clone() });
    assert!(index.interrupted().unwrap().is_empty(), "the sessions of a live process were taken for orphans");
    drop(owner);
    let busy = index.interrupted().unwrap();
    assert_eq!(busy.iter().map(SessionId::as_str).collect::<Vec<_>>(), ["s-2"]);
    index.set_status(&busy[0], SessionStatus::Asleep, 2).unwrap();
    assert!(index.interrupted().unwrap().is_empty(), "a session stays marked after it was opened");
    let asleep = SessionFilter { status: vec![SessionStatus::Asleep], ..SessionFilter::default() };
    assert_eq!(index.list_filtered(&asleep, None, 10).unwrap().sessions.len(), 2);
}

#[test]
fn labels_are_replaced_as_a_whole_and_counts_add_up() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = DataDir::open(temporary.path()).unwrap();
    let clock = ManualClock::at(1);
    let (index, owner) =
        (SessionIndex::open(&directory, clock.clone()).unwrap(), ProcessOwner::claim(&directory).unwrap());
    let id = SessionId::new("s1").unwrap();
    let labels = BTreeMap::from([("team".to_owned(), "red".to_owned())]);
    index.create(&NewSession { labels, ..NewSession::new(id.clone(), "mock", owner.id().clone()) }).unwrap();
    let found = |key: &str| {
        let labels = vec![LabelFilter { key: key.to_owned(), value: Some("red".to_owned()) }];
        index.list_filtered(&SessionFilter { labels, ..SessionFilter::default() }, None, 9).unwrap().sessions.len()
    };
    assert_eq!((found("team"), found("group")), (1, 0));
    let labels = Some(BTreeMap::from([("group".to_owned(), "red".to_owned())]));
    let tally = SessionTally { turns: 1, cost_picos: 5, denials: 2 };
    let patch = SessionPatch { labels, tally, ..SessionPatch::default() };
    index.update(&id, &patch).unwrap();
    let twice = index.update(&id, &SessionPatch { tally, ..SessionPatch::default() }).unwrap().info;
    assert_eq!((found("team"), found("group")), (0, 1));
    assert_eq!((twice.turns, twice.cost_picos, twice.denials), (2, 10, 4));
    index.update(&id, &SessionPatch { outcome: Some(SessionOutcome::Error), ..SessionPatch::default() }).unwrap();
    index.delete(&id).unwrap();
    assert_eq!(found("group"), 0, "a deleted session is found by its label");
}
