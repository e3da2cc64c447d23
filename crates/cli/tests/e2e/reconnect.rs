//! A client that reconnects at any cursor sees the same events as a client that stayed connected.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::fixture::viv_fixture;
use crate::http::{Client, Frame};
use crate::server::Server;

/// Prompts that produce every kind of event.
const PROMPTS: &[&str] = &["/demo", "/flood 40", "/tool", "/garbage", "/permission", "/question", "/error", "/echo hi"];

/// Reads with a client that disconnects after each of `cuts` events and reconnects with its last sequence number.
fn seen_with_cuts(client: &Client, id: &str, cuts: &[usize]) -> Vec<Frame> {
    let mut seen: Vec<Frame> = Vec::new();
    for &cut in cuts {
        let after = seen.last().map_or(0, |frame| frame.id);
        let Some(events) = client.events(id, after) else { break };
        seen.extend(events.take(cut));
    }
    let after = seen.last().map_or(0, |frame| frame.id);
    seen.extend(client.events(id, after).into_iter().flatten());
    seen
}

/// Runs a session to its end; the connected client answers requests.
fn steady(client: &Client, id: &str) -> Vec<Frame> {
    let mut seen = Vec::new();
    for frame in client.events(id, 0).unwrap() {
        let event = frame.json();
        seen.push(frame);
        let base = format!("/v1/sessions/{id}");
        match event["type"].as_str().unwrap() {
            "permission.requested" => {
                let permission = event["data"]["permission_id"].as_str().unwrap();
                client.post(&format!("{base}/permissions/{permission}/reply"), r#"{"reply":"once"}"#);
            }
            "question.requested" => {
                let question = event["data"]["question_id"].as_str().unwrap();
                client.post(&format!("{base}/questions/{question}/reply"), r#"{"answers":[["red"]]}"#);
            }
            _ => {}
        }
    }
    seen
}

#[test]
fn a_reconnecting_client_sees_what_a_connected_client_saw() {
    let place = viv_fixture();
    let server = Server::start(&place);
    let client = server.client();
    let mut number = 0;
    // A few sessions are watched live and then read again with many disconnects.
    for _ in 0..4 {
        number += 1;
        let id = format!("s{number}");
        assert_eq!(client.try_create(&id).unwrap().status, 200);
        let watchers: Vec<_> = [vec![1; 30], vec![7, 1, 50, 2, 2], vec![3; 12], vec![]]
            .into_iter()
            .map(|cuts| {
                let (client, id) = (client.clone(), id.clone());
                std::thread::spawn(move || seen_with_cuts(&client, &id, &cuts))
            })
            .collect();
        let main = {
            let (client, id) = (client.clone(), id.clone());
            std::thread::spawn(move || steady(&client, &id))
        };
        for prompt in PROMPTS {
            assert_eq!(client.try_send(&id, prompt).unwrap().status, 204, "{prompt}");
        }
        assert_eq!(client.try_send(&id, "/end").unwrap().status, 204);
        let expected = main.join().unwrap();
        assert!(expected.len() > 100, "only {} events", expected.len());
        assert_eq!(expected.last().unwrap().json()["type"], "session.ended");
        for (index, watcher) in watchers.into_iter().enumerate() {
            assert!(watcher.join().unwrap() == expected, "watcher {index} of {id} saw something else");
        }
        read_again(&client, &id, &expected);
    }
    server.stop();
}

/// Any number of events between disconnects, any cursor.
fn read_again(client: &Client, id: &str, expected: &[Frame]) {
    let cuts = prop::collection::vec(0..40_usize, 0..8);
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(24) });
    let checked = runner.run(&(cuts, 0..=expected.len()), |(cuts, after)| {
        prop_assert!(seen_with_cuts(client, id, &cuts) == expected, "cuts {:?}", cuts);
        let rest: Vec<_> = client.events(id, after as u64).into_iter().flatten().collect();
        prop_assert!(rest == expected[after..], "after {}", after);
        Ok(())
    });
    checked.unwrap();
}
