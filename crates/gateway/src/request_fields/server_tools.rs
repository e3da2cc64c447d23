//! Tools that the vendor runs and bills besides tokens.
//!
//! A tool is known and free, priced, or refused by name. Only web searches have a price in the table.

/// Types of tools that the client runs, or that cost only tokens. A type with a trailing `_` is a prefix.
const FREE_TYPES: [&str; 15] = [
    "function",
    "custom",
    "local_shell",
    "apply_patch",
    "computer",
    "computer_use_preview",
    "mcp",
    "mcp_toolset",
    "namespace",
    "tool_search",
    "bash_",
    "text_editor_",
    "computer_",
    "memory_",
    "web_fetch_",
];
/// A second list of prefixes, of tools that only find other tools.
const FINDER_TYPES: [&str; 1] = ["tool_search_tool_"];
/// The prefix of the types of web searches.
const SEARCH_TYPE: &str = "web_search";
/// Fields of Gemini's tools with which the vendor searches the web.
const SEARCH_FIELDS: [&str; 4] = ["googleSearch", "google_search", "googleSearchRetrieval", "google_search_retrieval"];
/// Fields of Gemini's tools that the vendor bills, and whose price is not known.
const UNPRICED_FIELDS: [&str; 9] = [
    "googleMaps",
    "google_maps",
    "fileSearch",
    "file_search",
    "retrieval",
    "enterpriseWebSearch",
    "enterprise_web_search",
    "parallelAiSearch",
    "parallel_ai_search",
];
/// Types that are refused also in tools that a message brings.
const UNPRICED_TYPES: [&str; 6] =
    ["code_interpreter", "code_execution", "file_search", "image_generation", "shell", "advisor"];

/// The searches held for if the request sets no limit. Vendors end a call with more searches much earlier.
const UNLIMITED_SEARCHES: u64 = 32;

/// The tools of a request that the vendor runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServerTools {
    pub(crate) searches: bool,
    /// The sum of the limits of all search tools.
    pub(crate) max_uses: Option<u64>,
    /// The first tool whose price is not known.
    pub(crate) unpriced: Option<String>,
}

impl ServerTools {
    /// Returns the most searches of one call; 0 if there is no search tool.
    pub(crate) fn max_searches(&self) -> u64 {
        if self.searches { self.max_uses.unwrap_or(UNLIMITED_SEARCHES) } else { 0 }
    }

    /// Notes the type of a tool. In the request's own list an unknown type is refused; a message may quote anything.
    pub(crate) fn add_type(&mut self, kind: &str, own_list: bool) {
        let is_known = |free: &&str| kind == *free || free.ends_with('_') && kind.starts_with(*free);
        if kind.starts_with(SEARCH_TYPE) && (own_list || !kind.ends_with("_call")) {
            self.searches = true;
        } else if FREE_TYPES.iter().chain(&FINDER_TYPES).any(is_known) {
        } else if own_list || UNPRICED_TYPES.iter().any(|paid| kind.starts_with(paid)) {
            self.refuse(kind);
        }
    }

    /// Notes a field of a tool object, for APIs in which the field names the tool.
    pub(crate) fn add_field(&mut self, name: &str) {
        if SEARCH_FIELDS.contains(&name) {
            self.searches = true;
        } else if UNPRICED_FIELDS.contains(&name) {
            self.refuse(name);
        }
    }

    /// Notes the limit of one search tool.
    pub(crate) fn add_max_uses(&mut self, uses: f64) {
        let uses = super::count(uses).unwrap_or(UNLIMITED_SEARCHES).min(UNLIMITED_SEARCHES * 8);
        self.max_uses = Some(self.max_uses.unwrap_or(0) + uses);
    }

    fn refuse(&mut self, name: &str) {
        self.unpriced.get_or_insert_with(|| name.chars().take(64).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(types: &[&str]) -> ServerTools {
        let mut tools = ServerTools::default();
        for kind in types {
            tools.add_type(kind, true);
        }
        tools
    }

    #[test]
    fn tool_is_free_priced_or_refused() {
        let free = tools(&["function", "custom", "bash_20250124", "text_editor_20250728", "web_fetch_20250910"]);
        assert_eq!((free.max_searches(), free.unpriced), (0, None));
        assert_eq!(tools(&["web_search_20250305"]).max_searches(), UNLIMITED_SEARCHES);
        for kind in ["code_execution_20250825", "image_generation", "file_search", "openrouter:web", "advisor_20260301"]
        {
            assert_eq!(tools(&[kind]).unpriced.as_deref(), Some(kind));
        }
    }

    #[test]
    fn message_may_quote_unknown_tools_but_not_bring_paid_ones() {
        let mut quoted = ServerTools::default();
        quoted.add_type("string", false);
        assert_eq!(quoted.unpriced, None);
        quoted.add_type("image_generation", false);
        assert!(quoted.unpriced.is_some());
    }

    #[test]
    fn limits_of_search_tools_add_up() {
        let mut limited = tools(&["web_search_20250305"]);
        limited.add_max_uses(8.0);
        assert_eq!(limited.max_searches(), 8);
        limited.add_max_uses(-1.0);
        assert_eq!(limited.max_searches(), 8 + UNLIMITED_SEARCHES);
    }
}
