//! The arguments `--skills` and `--mcp`, converted to the session API's JSON.

use std::collections::BTreeMap;
use std::path::Path;

use protocol::ProblemCode;
use serde_json::{Value, json};

use crate::failure::Failure;

/// Reads MCP servers by name from a JSON file.
pub(crate) fn read_mcp_servers(path: &Path) -> Result<BTreeMap<String, Value>, Failure> {
    let wrong = |error: &dyn std::error::Error| {
        Failure::new(ProblemCode::InvalidRequest, format!("cannot read MCP servers from `{}`", path.display()))
            .because(error)
            .help("viv run claude hello --mcp servers.json")
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    serde_json::from_str(&text).map_err(|error| wrong(&error))
}

/// Converts the sources of skills; `None` if there are none. Fails if a directory does not exist.
pub(crate) fn parse_skill_sources(sources: &[String]) -> Result<Option<Value>, Failure> {
    if sources.is_empty() {
        return Ok(None);
    }
    let sources = sources.iter().map(|source| {
        if source.contains("://") {
            return Ok(json!({"type": "git", "source": source}));
        }
        match Path::new(source).canonicalize() {
            Ok(directory) => Ok(json!({"type": "local", "source": directory})),
            Err(_) if source.split('/').count() == 2 => Ok(json!({"type": "github", "source": source})),
            Err(error) => {
                let what = format!("skills source `{source}` is neither a directory, OWNER/NAME nor a URL");
                Err(Failure::new(ProblemCode::InvalidRequest, what)
                    .because(&error)
                    .help("viv run claude hello --skills ./skills"))
            }
        }
    });
    Ok(Some(json!({"sources": sources.collect::<Result<Vec<_>, _>>()?})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_a_source_gives_its_type() {
        let kind =
            |source: &str| parse_skill_sources(&[source.to_owned()]).unwrap().unwrap()["sources"][0]["type"].clone();
        assert_eq!(kind("/"), "local");
        assert_eq!(kind("https://example.com/skills.git"), "git");
        assert_eq!(kind("owner/no-such-folder-here"), "github");
        assert!(parse_skill_sources(&["/nowhere/at/all".to_owned()]).is_err());
        assert_eq!(parse_skill_sources(&[]).unwrap(), None);
    }
}
