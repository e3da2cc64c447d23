//! Long calls at a dear rate that share the default budget.

use super::*;

#[tokio::test]
async fn two_long_calls_at_the_dearest_rate_run_at_once_within_five_dollars() {
    let paced = PacedVendor::start().await;
    // Dollars per million tokens: 18.75 for a prompt that is written to the cache, 75 for the answer.
    let rates = TokenRates { input: 18_750_000, output: 75_000_000, ..TokenRates::default() };
    let price = ModelPrice::flat(rates).with_max_output_tokens(128_000).with_reasoning(HiddenReasoning::Asked);
    let config = VendorConfig::new("stub", VendorKind::Anthropic, paced.vendor.url());
    let gateway = TestGateway::with_identity(
        Arc::new(VendorUpstream::new(config).unwrap()),
        PriceTable::default().with_price("claude-test", price),
        |identity| {
            identity.budgets = budget(5_000_000_000_000);
            identity.limits.held_wait = Duration::ZERO;
        },
    );
    let body = message(&json!({"messages": [{"role": "user", "content": "x".repeat(76 << 10)}]}));
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut client = TestClient::connect(gateway.address).await;
        let answer = client.send(gateway.request(http::Method::POST, "/v1/messages", body.clone())).await;
        assert_eq!(answer.status(), StatusCode::OK);
        let mut stream = answer.into_body();
        next_frame(&mut stream).await.unwrap();
        open.push((client, stream));
    }
    paced.allowed.send_replace(END);
    for (_, stream) in &mut open {
        while next_frame(stream).await.is_some() {}
    }
    let row = gateway.close().await.session_usage();
    assert_eq!((row.held_picos, row.unknown), (0, 0), "{row:?}");
}
