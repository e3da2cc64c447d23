//! The list of tools, with their schemas.
//!
//! Not here: `tools.json`, which is the list.

use std::sync::OnceLock;

use rmcp::model::Tool;

/// The name under which clients register this server, and its name in the protocol.
pub const SERVER_NAME: &str = "sandboxed_code";

/// Returns all tools.
pub(crate) fn tools() -> &'static [Tool] {
    static TOOLS: OnceLock<Vec<Tool>> = OnceLock::new();
    // A test checks that the list can be read.
    TOOLS.get_or_init(|| serde_json::from_str(include_str!("tools.json")).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_listed_with_a_closed_schema() {
        let names: Vec<_> = tools().iter().map(|tool| tool.name.as_ref()).collect();
        assert_eq!(names, ["run", "read_file", "write_files", "list_files", "changes", "approve"]);
        for tool in tools().iter().filter(|tool| tool.name != "approve") {
            assert_eq!(tool.input_schema["additionalProperties"], false, "{}", tool.name);
            assert!(tool.output_schema.is_some(), "{}", tool.name);
        }
    }
}
