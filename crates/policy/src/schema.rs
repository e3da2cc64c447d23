//! The JSON Schema of the policy file, and the reference table for the documentation.

use serde_json::Value;

use crate::document::PolicyDocument;
use crate::finding::PolicyError;
use crate::key::PolicyKey;
use crate::layer::BaseLayer;
use crate::source::PolicySource;

/// Returns the JSON Schema (2020-12) of `sandbox.policy.yaml`, for editors.
pub fn schema() -> Value {
    schemars::schema_for!(PolicyDocument).to_value()
}

/// Returns the reference section of `docs/policy.md`: a Markdown table of the keys of each section.
pub fn reference() -> Result<String, PolicyError> {
    let schema = schema();
    let empty = BaseLayer::read(&PolicySource::new("empty", ""))?;
    let mut page = String::new();
    let mut last = "";
    for key in PolicyKey::ALL {
        let Some((name, leaf)) = key.name().split_once('.') else { continue };
        let section = resolve(&schema, &schema["properties"][name]);
        if name != last {
            page.extend(["### `", name, "`\n\n", &text(&section["description"]), "\n\n"]);
            page += "| key | value | absent in a base | meaning |\n| --- | --- | --- | --- |\n";
        }
        last = name;
        let property = &section["properties"][leaf];
        let absent = absent_cell(&empty.policy().show(*key));
        let cells = [format!("`{leaf}`"), kind(&schema, property), absent, text(&property["description"])];
        page.extend(["| ", &cells.join(" | "), " |\n"]);
        let ends = PolicyKey::ALL.iter().rev().find(|other| other.name().starts_with(&format!("{name}."))) == Some(key);
        page += if ends { "\n" } else { "" };
    }
    Ok(page)
}

/// Formats a default value. A long list is reduced to its length; `builtin/strictest.yaml` has the entries.
fn absent_cell(absent: &str) -> String {
    match absent.matches(", ").count() {
        count if count > 2 => format!("{} built-in entries", count + 1),
        _ => format!("`{absent}`"),
    }
}

/// Describes the type of a value with examples.
fn kind(schema: &Value, property: &Value) -> String {
    let property = resolve(schema, property);
    if let Some(choices) = property["oneOf"].as_array() {
        let names: Vec<String> = choices.iter().map(|choice| format!("`{}`", text(&choice["const"]))).collect();
        return names.join(", ");
    }
    if property["items"].is_object() {
        let items = resolve(schema, &property["items"]);
        return format!("list; entry: {}, e.g. {}", text(&items["title"]), examples(items));
    }
    match property["title"].as_str() {
        Some(title) => format!("{title}, e.g. {}", examples(property)),
        None => "`true`, `false`".to_owned(),
    }
}

fn examples(property: &Value) -> String {
    let examples = property["examples"].as_array().into_iter().flatten();
    let shown = examples.map(|example| match example {
        // A bare `|` would end the table cell.
        Value::String(text) => format!("`{}`", text.replace('|', "\\|")),
        other => format!("`{other}`"),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Follows a reference, and unwraps the `null` alternative of an optional key.
fn resolve<'a>(schema: &'a Value, node: &'a Value) -> &'a Value {
    if let Some(reference) = node["$ref"].as_str() {
        return schema.pointer(reference.trim_start_matches('#')).unwrap_or(node);
    }
    let real = node["anyOf"].as_array().into_iter().flatten().find(|choice| choice["type"] != "null");
    real.map_or(node, |choice| resolve(schema, choice))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().replace('\n', " ")
}
