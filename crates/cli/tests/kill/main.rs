//! Kills `viv gateway serve` a hundred times at random points under load: no charge is lost or doubled.
//!
//! The vendor runs in this process, records the calls it served, and triggers the kills. `VIV_TEST_SEED` repeats a run.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that panics has failed, which is its purpose")]

mod books;
mod host;
mod load;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use protocol::CallId;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, sync::watch, task::JoinSet};

use books::Tally;
use host::GatewayFixture;
use testkit::SeededRandom;
use testkit::stub_vendor::{Connection, ReceivedRequest, StubVendor, http_event_stream, http_response};

/// Number of kills, divided among the data directories.
const ROUNDS: usize = 100;
const ROUNDS_PER_DATA_DIR: usize = 10;
const CLIENTS: usize = 8;
/// Maximum number of vendor steps before a kill.
const MOMENTS: u64 = 60;
/// Maximum additional delay in microseconds.
const DELAY_MICROS: u64 = 2_000;
/// Configured prices in pico-dollars per input and output token.
const RATES: (u64, u64) = (3_000_000, 15_000_000);

/// Served calls with their cost in pico-dollars; two entries would be a double charge.
type Served = Arc<Mutex<HashMap<CallId, Vec<u64>>>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_charge_is_lost_or_doubled_by_kill_9() {
    let random = Arc::new(SeededRandom::from_environment());
    let (mut settled, mut estimated) = (0, 0);
    for durability in ["normal", "full", "lease"].into_iter().cycle().take(ROUNDS / ROUNDS_PER_DATA_DIR) {
        let tally = kill_again_and_again(&random, durability).await;
        println!("{durability}: {tally:?}");
        (settled, estimated) = (settled + tally.settled, estimated + tally.estimated);
        assert_eq!(tally.unknown, 0, "a call of a killed gateway is not settled");
    }
    assert!(
        settled > ROUNDS && estimated > 0,
        "{settled} settled and {estimated} estimated: the kills hit no running calls"
    );
}

/// Runs the kills of one data directory.
async fn kill_again_and_again(random: &Arc<SeededRandom>, durability: &str) -> Tally {
    let (served, moments) = (Served::default(), watch::Sender::new(0));
    let vendor = vendor(served.clone(), moments.clone(), random.clone()).await;
    let fixture = GatewayFixture::new(&vendor.url(), durability);
    let mut finished = Vec::new();
    for _ in 0..ROUNDS_PER_DATA_DIR {
        let host = tokio::task::block_in_place(|| fixture.serve());
        let last = *moments.borrow() + 1 + random.below(MOMENTS);
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            clients.spawn(load::until_it_breaks(host.address, host.key.clone()));
        }
        moments.subscribe().wait_for(|moment| *moment >= last).await.unwrap();
        testkit::pause_async(Duration::from_micros(random.below(DELAY_MICROS))).await;
        tokio::task::block_in_place(|| host.kill());
        finished.extend(clients.join_all().await.into_iter().flatten());
    }
    // The last gateway recovers the calls of the killed ones and stops cleanly.
    tokio::task::block_in_place(|| fixture.serve().leave());
    let served = served.lock().unwrap();
    books::check(&fixture.data_dir(), &served, &finished)
}

/// A slow vendor that records its calls.
async fn vendor(served: Served, moments: watch::Sender<u64>, random: Arc<SeededRandom>) -> StubVendor {
    StubVendor::with_handler(move |request, mut pipe: Box<dyn Connection>| {
        let (served, moments, random) = (served.clone(), moments.clone(), random.clone());
        async move {
            let moment = || moments.send_modify(|moment| *moment += 1);
            let (call, tokens) = (call_of(&request), (1 + random.below(1_000), 1 + random.below(100)));
            let cost = tokens.0 * RATES.0 + tokens.1 * RATES.1;
            served.lock().unwrap().entry(call.clone()).or_default().push(cost);
            moment();
            let stream = serde_json::from_slice::<Value>(&request.body).unwrap()["stream"] == true;
            let answer = answer(&call, tokens, stream);
            let half = usize::try_from(random.below(answer.len() as u64)).unwrap();
            pipe.write_all(&answer.as_bytes()[..half]).await.ok()?;
            moment();
            testkit::pause_async(Duration::from_micros(random.below(DELAY_MICROS))).await;
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
