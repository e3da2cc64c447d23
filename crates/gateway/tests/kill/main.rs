//! The gateway is killed at random points under load, again and again: no charge is lost and none is doubled.
//!
//! The vendor lives in this process and remembers what it served; the gateway is a child that gets SIGKILL.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that panics has failed, which is its purpose")]

mod child;
mod load;
#[path = "../boundary/vendor.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod vendor;

use std::{
    collections::HashMap,
    path::Path,
    process::ExitCode,
    sync::{Arc, Mutex},
    time::Duration,
};

use libtest_mimic::{Arguments, Trial};
use protocol::CallId;
use rusqlite::Connection;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, task::JoinSet};
use uuid::Uuid;

use child::Host;
use vendor::{Pipe, Received, StubVendor, chunked, whole};

/// How often the gateway is killed. More rounds find rarer moments; a release is worth some hundreds.
const ROUNDS: usize = 30;
const CLIENTS: usize = 8;
/// Milliseconds until a kill, at most.
const LONGEST_LIFE: u64 = 150;
/// Pico-dollars a token, in and out.
const RATES: (u64, u64) = (3_000_000, 15_000_000);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [word, directory, url] = words.as_slice()
        && word == child::WORD
    {
        return child::live(Path::new(directory), url);
    }
    let test = Trial::test("no_charge_is_lost_or_doubled_by_kill_9", || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(kill_under_load());
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![test]).exit_code()
}

/// What the vendor served, in pico-dollars by call; more than once would be a second charge.
type Served = Arc<Mutex<HashMap<CallId, Vec<u64>>>>;

async fn kill_under_load() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::default();
    let vendor = vendor(served.clone()).await;
    let mut finished = Vec::new();
    for _ in 0..ROUNDS {
        let host = Host::start(directory.path(), &vendor.url()).await;
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            clients.spawn(load::until_it_breaks(host.address, host.token.clone()));
        }
        tokio::time::sleep(Duration::from_millis(random() % LONGEST_LIFE)).await;
        host.kill().await;
        finished.extend(clients.join_all().await.into_iter().flatten());
    }
    // One that lives puts in order what the others left, and leaves in order itself.
    Host::start(directory.path(), &vendor.url()).await.leave().await;
    check(directory.path(), &served.lock().unwrap(), &finished);
}

/// Holds the ledger against what the vendor served and what clients saw the end of.
fn check(directory: &Path, served: &HashMap<CallId, Vec<u64>>, finished: &[CallId]) {
    let rows = rows(directory);
    let (mut settled, mut unknown, mut sum) = (0, 0, 0);
    for (call, costs) in served {
        assert_eq!(costs.len(), 1, "`{call}` was sent twice");
        let (state, spent) = rows.get(call).unwrap_or_else(|| panic!("`{call}` was served and is not in the ledger"));
        match state.as_str() {
            "settled" => settled += 1,
            "unknown" => unknown += 1,
            state => panic!("`{call}` was served and is {state}"),
        }
        let expected = if state == "settled" { costs[0] } else { 0 };
        assert_eq!(*spent, expected, "`{call}` is {state}");
        sum += spent;
    }
    for (call, (state, spent)) in &rows {
        assert!(["settled", "failed", "unknown"].contains(&state.as_str()), "`{call}` is {state}");
        assert!(served.contains_key(call) || *spent == 0, "`{call}` was charged and never served");
    }
    for call in finished {
        assert_eq!(rows[call].0, "settled", "a client saw the end of `{call}`");
    }
    let total: u64 = served.values().flatten().sum();
    let open: u64 = served.iter().filter(|(call, _)| rows[*call].0 == "unknown").map(|(_, costs)| costs[0]).sum();
    assert_eq!(sum + open, total);
    assert!(settled > ROUNDS, "{settled} settled and {unknown} unknown are no load");
    println!("{} calls: {settled} settled, {unknown} unknown, {} seen to their end", rows.len(), finished.len());
}

/// State and charge of every call in the ledger.
fn rows(directory: &Path) -> HashMap<CallId, (String, u64)> {
    let database = Connection::open(directory.join("ledger.db")).unwrap();
    let mut statement = database.prepare("SELECT call_id, state, spent_picos FROM call").unwrap();
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, (row.get(1)?, row.get(2)?)));
    let rows = statement.query_map([], read).unwrap().map(Result::unwrap);
    rows.map(|(call, rest)| (CallId::new(call).unwrap(), rest)).collect()
}

/// A vendor that takes a moment, answers as it was asked, and remembers.
async fn vendor(served: Served) -> StubVendor {
    StubVendor::playing(move |request, mut pipe: Box<dyn Pipe>| {
        let served = served.clone();
        async move {
            let (call, tokens) = (call_of(&request), (1 + random() % 1_000, 1 + random() % 100));
            let cost = tokens.0 * RATES.0 + tokens.1 * RATES.1;
            served.lock().unwrap().entry(call.clone()).or_default().push(cost);
            tokio::time::sleep(Duration::from_micros(random() % 3_000)).await;
            let stream = serde_json::from_slice::<Value>(&request.body).unwrap()["stream"] == true;
            pipe.write_all(answer(&call, tokens, stream).as_bytes()).await.ok()?;
            Some(pipe)
        }
    })
    .await
}

fn call_of(request: &Received) -> CallId {
    let metadata = request.header("x-litellm-spend-logs-metadata").unwrap();
    let metadata: Value = serde_json::from_str(metadata).unwrap();
    CallId::new(metadata["run_id"].as_str().unwrap()).unwrap()
}

fn answer(call: &CallId, (input, output): (u64, u64), stream: bool) -> String {
    if !stream {
        let message = json!({"id": call, "type": "message", "role": "assistant", "model": "m", "content": [],
            "stop_reason": "end_turn", "usage": {"input_tokens": input, "output_tokens": output}});
        return whole("200 OK", "application/json", &message.to_string());
    }
    let usage = json!({"input_tokens": input, "output_tokens": 1});
    let start =
        json!({"type": "message_start", "message": {"id": call, "type": "message", "model": "m", "usage": usage}});
    let end =
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": output}});
    let event = |name: &str, data: &Value| format!("event: {name}\ndata: {data}\n\n");
    let stop = event("message_stop", &json!({"type": "message_stop"}));
    chunked(&[&event("message_start", &start), &event("message_delta", &end), &stop])
}

fn random() -> u64 {
    Uuid::new_v4().as_u64_pair().1 >> 8
}
