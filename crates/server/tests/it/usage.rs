//! Usage over the API.

use crate::stage::Stage;
use crate::trials;

trials!(usage_contains_the_calls_of_a_session, invalid_usage_query_is_refused);

async fn usage_contains_the_calls_of_a_session() {
    let stage = Stage::new();
    let client = &stage.client;
    assert_eq!(client.post("/v1/sessions/s1", r#"{"agent":"mock"}"#).await.status, 200);
    assert_eq!(client.get("/v1/sessions/s1/usage").await.json()["calls"], 0);
    assert_eq!(client.get("/v1/sessions/none/usage").await.status, 404);
    client.post("/v1/sessions/s1/messages/stream", r#"{"message":"hello"}"#).await;
    let used = client.get("/v1/sessions/s1/usage").await.json();
    assert!(used["calls"].as_u64().unwrap() > 0 && used["outputTokens"].as_u64().unwrap() > 0, "{used}");
    assert_eq!((&used["name"], &used["spentPicos"], &used["heldPicos"]), (&"s1".into(), &0.into(), &0.into()));
    let list = client.get("/v1/usage?by=agent&since=1h").await.json();
    assert_eq!(list["by"], "agent");
    assert_eq!((&list["rows"][0]["name"], &list["rows"][0]["calls"]), (&"mock".into(), &used["calls"]), "{list}");
}

async fn invalid_usage_query_is_refused() {
    let stage = Stage::new();
    for query in ["by=planet", "since=yesterday", "until=1h"] {
        let answer = stage.client.get(&format!("/v1/usage?{query}")).await;
        assert_eq!((answer.status, &answer.json()["code"]), (400, &"invalid_request".into()), "{query}");
    }
}
