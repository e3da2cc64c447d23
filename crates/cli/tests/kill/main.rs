//! `viv gateway serve` is killed at random points under load, a hundred times: no charge is lost and none is doubled.
//!
//! The vendor lives in this process and remembers what it served; it also says when the gateway dies, in the midst
//! of what it does. `VIV_TEST_SEED` repeats the throws of a run.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that panics has failed, which is its purpose")]

mod books;
mod dice;
mod host;
mod load;
#[path = "../../../gateway/tests/support/stub_vendor.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod vendor;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use protocol::CallId;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, sync::watch, task::JoinSet};

use books::Tally;
use dice::Dice;
use host::Place;
use vendor::{Connection, ReceivedRequest, StubVendor, http_event_stream, http_response};

/// How often the gateway is killed; each data directory sees its share.
const ROUNDS: usize = 100;
const ROUNDS_A_PLACE: usize = 10;
const CLIENTS: usize = 8;
/// A kill comes after so many moments of the vendor, at most.
const MOMENTS: u64 = 60;
/// And so many microseconds later, at most.
const DELAY_MICROS: u64 = 2_000;
/// Pico-dollars a token, in and out, as the configuration has them.
const RATES: (u64, u64) = (3_000_000, 15_000_000);

/// What the vendor served, in pico-dollars by call; more than once would be a second charge.
type Served = Arc<Mutex<HashMap<CallId, Vec<u64>>>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_charge_is_lost_or_doubled_by_kill_9() {
    let dice = Dice::seeded();
    let (mut settled, mut unknown) = (0, 0);
    for durability in ["normal", "full", "lease"].into_iter().cycle().take(ROUNDS / ROUNDS_A_PLACE) {
        let tally = kill_again_and_again(&dice, durability).await;
        println!("{durability}: {tally:?}");
        (settled, unknown) = (settled + tally.settled, unknown + tally.unknown);
    }
    assert!(settled > ROUNDS && unknown > 0, "{settled} settled and {unknown} unknown are no kills under load");
}

/// The life of one data directory.
async fn kill_again_and_again(dice: &Dice, durability: &str) -> Tally {
    let (served, moments) = (Served::default(), watch::Sender::new(0));
    let vendor = vendor(served.clone(), moments.clone(), dice.clone()).await;
    let place = Place::new(&vendor.url(), durability);
    let mut finished = Vec::new();
    for _ in 0..ROUNDS_A_PLACE {
        let host = tokio::task::block_in_place(|| place.serve());
        let last = *moments.borrow() + 1 + dice.below(MOMENTS);
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            clients.spawn(load::until_it_breaks(host.address, host.key.clone()));
        }
        moments.subscribe().wait_for(|moment| *moment >= last).await.unwrap();
        tokio::time::sleep(Duration::from_micros(dice.below(DELAY_MICROS))).await;
        tokio::task::block_in_place(|| host.kill());
        finished.extend(clients.join_all().await.into_iter().flatten());
    }
    // One that lives puts in order what the others left, and leaves in order itself.
    tokio::task::block_in_place(|| place.serve().leave());
    let served = served.lock().unwrap();
    books::check(place.path(), &served, &finished)
}

/// A vendor that takes a moment, answers as it was asked, and remembers.
async fn vendor(served: Served, moments: watch::Sender<u64>, dice: Dice) -> StubVendor {
    StubVendor::with_handler(move |request, mut pipe: Box<dyn Connection>| {
        let (served, moments, dice) = (served.clone(), moments.clone(), dice.clone());
        async move {
            let moment = || moments.send_modify(|moment| *moment += 1);
            let (call, tokens) = (call_of(&request), (1 + dice.below(1_000), 1 + dice.below(100)));
            let cost = tokens.0 * RATES.0 + tokens.1 * RATES.1;
            served.lock().unwrap().entry(call.clone()).or_default().push(cost);
            moment();
            let stream = serde_json::from_slice::<Value>(&request.body).unwrap()["stream"] == true;
            let answer = answer(&call, tokens, stream);
            let half = usize::try_from(dice.below(answer.len() as u64)).unwrap();
            pipe.write_all(&answer.as_bytes()[..half]).await.ok()?;
            moment();
            tokio::time::sleep(Duration::from_micros(dice.below(DELAY_MICROS))).await;
            pipe.write_all(&answer.as_bytes()[half..]).await.ok()?;
            moment();
            Some(pipe)
        }
    })
    .await
}

fn call_of(request: &ReceivedRequest) -> CallId {
    let metadata = request.header("x-litellm-spend-logs-metadata").unwrap();
    let metadata: Value = serde_json::from_str(metadata).unwrap();
    CallId::new(metadata["call_id"].as_str().unwrap()).unwrap()
}

fn answer(call: &CallId, (input, output): (u64, u64), stream: bool) -> String {
    if !stream {
        let message = json!({"id": call, "type": "message", "role": "assistant", "model": "m", "content": [],
            "stop_reason": "end_turn", "usage": {"input_tokens": input, "output_tokens": output}});
        return http_response("200 OK", "application/json", &message.to_string());
    }
    let usage = json!({"input_tokens": input, "output_tokens": 1});
    let start =
        json!({"type": "message_start", "message": {"id": call, "type": "message", "model": "m", "usage": usage}});
    let end =
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": output}});
    let event = |name: &str, data: &Value| format!("event: {name}\ndata: {data}\n\n");
    let stop = event("message_stop", &json!({"type": "message_stop"}));
    http_event_stream(&[&event("message_start", &start), &event("message_delta", &end), &stop])
}
