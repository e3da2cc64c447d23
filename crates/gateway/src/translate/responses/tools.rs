//! The tools of a responses request, under names that every upstream accepts.
//!
//! A tool in a namespace gets the name of both. A tool that takes free text becomes a function with one text field.

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::translate::{
    conversation::{Tool, ToolAlias},
    fields::{Fields, TranslationError},
};

/// The longest name of a tool.
const MAX_NAME: usize = 64;

/// Returns the name of a tool at the upstream: letters, digits, `_` and `-`, at most 64.
pub(super) fn upstream_name(namespace: Option<&str>, name: &str) -> String {
    let name = match namespace {
        Some(namespace) if namespace.ends_with("__") => format!("{namespace}{name}"),
        Some(namespace) => format!("{namespace}__{name}"),
        None => name.to_owned(),
    };
    let is_accepted = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let accepted: String = name.chars().map(|c| if is_accepted(c) { c } else { '_' }).collect();
    if accepted == name && name.len() <= MAX_NAME {
        return name;
    }
    // The digest keeps names apart that differ only in what was replaced or cut.
    let digest = Sha256::digest(name.as_bytes());
    let suffix = format!("_{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3]);
    format!("{}{suffix}", &accepted[..accepted.len().min(MAX_NAME - suffix.len())])
}

/// The tools that a request has declared so far.
#[derive(Default)]
pub(super) struct ToolSet(Vec<Tool>);

impl ToolSet {
    /// Adds the tools that `tool` declares. Fails for tools that only the vendor can run.
    pub(super) fn add(&mut self, mut tool: Fields, namespace: Option<&str>) -> Result<(), TranslationError> {
        match tool.need::<String>("type")?.as_str() {
            "function" => self.add_function(tool, namespace),
            "custom" => self.add_custom(tool, namespace),
            "namespace" if namespace.is_none() => {
                let name: String = tool.need("name")?;
                for member in tool.objects("tools")? {
                    self.add(member, Some(&name))?;
                }
                tool.finish(&["description"])
            }
            other => Err(tool.no_equivalent(&format!("type: {other}"))),
        }
    }

    fn add_function(&mut self, mut tool: Fields, namespace: Option<&str>) -> Result<(), TranslationError> {
        let name: String = tool.need("name")?;
        let description = tool.take("description")?;
        let schema = tool.take("parameters")?.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
        let strict = tool.take("strict")?;
        tool.finish(&["defer_loading", "output_schema"])?;
        self.push(name, namespace, false, Tool { name: String::new(), description, schema, strict, alias: None });
        Ok(())
    }

    fn add_custom(&mut self, mut tool: Fields, namespace: Option<&str>) -> Result<(), TranslationError> {
        let name: String = tool.need("name")?;
        let mut description: String = tool.text("description")?;
        // No other API can hold the model to a grammar, so the model is told.
        if let Some(mut format) = tool.object("format")? {
            let definition = format.text("definition")?;
            if !definition.is_empty() {
                let syntax = format.text("syntax")?;
                description = format!("{description}\n\n`input` must match this {syntax} grammar:\n{definition}");
            }
        }
        tool.finish(&["defer_loading"])?;
        let schema = json!({
            "type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"],
        });
        let description = Some(description).filter(|text| !text.is_empty());
        self.push(name, namespace, true, Tool { name: String::new(), description, schema, strict: None, alias: None });
        Ok(())
    }

    fn push(&mut self, name: String, namespace: Option<&str>, custom: bool, tool: Tool) {
        let upstream_name = upstream_name(namespace, &name);
        // A tool that is declared twice is one tool; vendors reject the second declaration.
        self.0.retain(|known| known.name != upstream_name);
        let differs = custom || upstream_name != name;
        let namespace = namespace.map(str::to_owned);
        let alias = differs.then(|| ToolAlias { upstream_name: upstream_name.clone(), name, namespace, custom });
        self.0.push(Tool { name: upstream_name, alias, ..tool });
    }

    pub(super) fn into_tools(self) -> Vec<Tool> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_accepted_and_unique() {
        assert_eq!(upstream_name(None, "run"), "run");
        assert_eq!(upstream_name(Some("mcp__shop"), "buy"), "mcp__shop__buy");
        let long = "n".repeat(100);
        for name in [upstream_name(Some("a/b"), "c.d"), upstream_name(Some("ä"), "ö"), upstream_name(None, &long)] {
            assert!(name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{name}");
        }
        assert_ne!(upstream_name(None, "a.b"), upstream_name(None, "a/b"));
    }
}
