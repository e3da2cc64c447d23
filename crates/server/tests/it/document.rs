//! The OpenAPI document: it matches the server, and contains the existing API that it is compatible with.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::stage::Stage;

crate::trials!(
    served_document_equals_the_committed_one,
    document_contains_the_existing_api,
    every_operation_has_a_unique_id_and_a_summary,
    document_references_resolve,
);

/// The document of the existing API.
const CONTRACT: &str = include_str!("../contract/openapi.json");

/// Fields of the existing API that this server never fills, each with the reason.
const NEVER: &[(&str, &str)] = &[
    ("serverStatus", "every session has its own process, so no server of an agent has a status"),
    ("error", "a session that is not healthy is a problem document, not a 200"),
    ("instance", "`request_id` names the call that failed"),
];

async fn served() -> Value {
    let answer = Stage::new().client.get("/openapi.json").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

async fn served_document_equals_the_committed_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let served = served().await;
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let pretty = serde_json::to_string_pretty(&served).unwrap() + "\n";
    if committed != pretty {
        std::fs::write(path.with_extension("json.new"), pretty).unwrap();
        panic!(
            "openapi.json differs from the served document: review openapi.json.new, and replace openapi.json with it"
        );
    }
    assert!(served["openapi"].as_str().unwrap().starts_with("3.1."), "{}", served["openapi"]);
}

/// Collects all `$ref` targets of the document.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

async fn document_references_resolve() {
    let (document, mut found) = (served().await, BTreeSet::new());
    references(&document, &mut found);
    assert!(!found.is_empty());
    let missing: Vec<&String> = found
        .iter()
        .filter(|place| place.strip_prefix('#').is_none_or(|place| document.pointer(place).is_none()))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

async fn document_contains_the_existing_api() {
    let (contract, ours): (Value, _) = (serde_json::from_str(CONTRACT).unwrap(), served().await);
    let (mut wrong, mut missing) = (Vec::new(), BTreeSet::new());
    for (path, item) in contract["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let route = format!("{} {path}", method.to_uppercase());
            match &ours["paths"][path][method] {
                Value::Null => drop(missing.insert(route)),
                found => {
                    wrong
                        .extend(differences(&contract, operation, &ours, found).map(|what| format!("{route}: {what}")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(missing.is_empty(), "{missing:?}");
}

/// Returns the parts of their operation that ours lacks.
fn differences<'a>(
    contract: &'a Value,
    theirs: &'a Value,
    document: &'a Value,
    ours: &'a Value,
) -> impl Iterator<Item = String> + 'a {
    let parameters = lacking(&parameters(theirs), &parameters(ours), "parameter");
    let statuses = lacking(&keys(&theirs["responses"]), &keys(&ours["responses"]), "status");
    let request = lacking(
        &fields(contract, &body(&theirs["requestBody"])),
        &fields(document, &body(&ours["requestBody"])),
        "field of the request",
    );
    let answers = keys(&theirs["responses"]).into_iter().filter(|status| status.starts_with('2')).flat_map(|status| {
        let (theirs, ours) = (body(&theirs["responses"][&status]), body(&ours["responses"][&status]));
        lacking(&fields(contract, &theirs), &fields(document, &ours), "field of the answer")
    });
    parameters.into_iter().chain(statuses).chain(request).chain(answers)
}

fn lacking(theirs: &BTreeSet<String>, ours: &BTreeSet<String>, what: &str) -> Vec<String> {
    let never = |name: &str| {
        NEVER.iter().any(|(field, _)| name.rsplit('.').next() == Some(field) || name.contains(&format!("{field}.")))
    };
    theirs.difference(ours).filter(|name| !never(name)).map(|name| format!("no {what} `{name}`")).collect()
}

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
}

fn parameters(operation: &Value) -> BTreeSet<String> {
    let all = operation["parameters"].as_array().into_iter().flatten();
    all.map(|parameter| format!("{} in {}", parameter["name"].as_str().unwrap(), parameter["in"].as_str().unwrap()))
        .collect()
}

/// Returns the schema of a body of any media type.
fn body(of: &Value) -> Value {
    let content = of["content"].as_object().and_then(|content| content.values().next());
    content.map(|content| content["schema"].clone()).unwrap_or_default()
}

/// Returns every field of a schema with its nested fields, as `sessions.agent`. The content of `data`, `mcp` and `skills`
/// is skipped: `data` depends on `type`, and the others are refused or passed on unchanged.
fn fields(document: &Value, schema: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    collect(document, schema, "", &mut found, 0);
    found
}

fn collect(document: &Value, schema: &Value, prefix: &str, found: &mut BTreeSet<String>, depth: usize) {
    if depth > 8 {
        return;
    }
    if let Some(name) = schema["$ref"].as_str() {
        let pointer = name.trim_start_matches('#');
        return collect(document, document.pointer(pointer).unwrap(), prefix, found, depth + 1);
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        if !matches!(name.as_str(), "data" | "mcp" | "skills") {
            collect(document, inner, &path, found, depth + 1);
        }
        found.insert(path);
    }
    if !schema["items"].is_null() {
        collect(document, &schema["items"], prefix, found, depth + 1);
    }
    for many in ["allOf", "oneOf", "anyOf"] {
        schema[many].as_array().into_iter().flatten().for_each(|one| collect(document, one, prefix, found, depth + 1));
    }
}

async fn every_operation_has_a_unique_id_and_a_summary() {
    let (document, mut names) = (served().await, BTreeSet::new());
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name.to_owned()), "`{name}` is used twice");
            assert!(operation["summary"].as_str().is_some_and(|text| text.len() > 8), "{method} {path} says nothing");
        }
    }
}
