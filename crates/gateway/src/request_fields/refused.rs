//! Fields that could change who answers a call, or its price, behind the gateway's back. They are refused by name.

use super::parser::is_variant;

/// Refused fields, each with the reason.
const REFUSED: [(&str, &str); 35] = [
    ("models", ANOTHER_MODEL),
    ("model_list", ANOTHER_MODEL),
    ("fallback", ANOTHER_MODEL),
    ("fallbacks", ANOTHER_MODEL),
    ("fallback_models", ANOTHER_MODEL),
    ("context_window_fallbacks", ANOTHER_MODEL),
    ("content_policy_fallbacks", ANOTHER_MODEL),
    ("route", ANOTHER_MODEL),
    ("router", ANOTHER_MODEL),
    ("preset", ANOTHER_MODEL),
    ("provider", ANOTHER_SERVER),
    ("providers", ANOTHER_SERVER),
    ("provider_options", ANOTHER_SERVER),
    ("providerOptions", ANOTHER_SERVER),
    ("custom_llm_provider", ANOTHER_SERVER),
    ("specific_deployment", ANOTHER_SERVER),
    ("user_config", ANOTHER_SERVER),
    ("api_base", ANOTHER_SERVER),
    ("base_url", ANOTHER_SERVER),
    ("api_key", ANOTHER_SERVER),
    ("api_version", ANOTHER_SERVER),
    ("organization", ANOTHER_SERVER),
    ("extra_body", ADDED_FIELDS),
    ("extra_headers", ADDED_FIELDS),
    ("extra_query", ADDED_FIELDS),
    ("headers", ADDED_FIELDS),
    ("plugins", UNKNOWN_PRICE),
    ("web_search_options", UNKNOWN_PRICE),
    ("container", UNKNOWN_PRICE),
    ("audio", UNKNOWN_PRICE),
    ("use_beam_search", UNKNOWN_PRICE),
    ("beam_width", UNKNOWN_PRICE),
    ("input_cost_per_token", OWN_PRICE),
    ("output_cost_per_token", OWN_PRICE),
    ("mock_response", OWN_PRICE),
];
const ANOTHER_MODEL: &str = "it can choose another model than the one that is priced; name one model in `model`";
const ANOTHER_SERVER: &str = "it can choose another server; the upstream is set in `viv.toml`";
const ADDED_FIELDS: &str = "it can add fields that are not checked";
const UNKNOWN_PRICE: &str = "its price is not known";
const OWN_PRICE: &str = "it can change the price in the records of a proxy";

/// The prefix of a LiteLLM proxy's own fields.
const PROXY_FIELDS: &str = "litellm_";

/// Returns the name and the reason if the top-level field `name` is refused, in any case of its letters.
pub(super) fn reason(name: &str) -> Option<(&'static str, &'static str)> {
    if name.get(..PROXY_FIELDS.len()).is_some_and(|start| start.eq_ignore_ascii_case(PROXY_FIELDS)) {
        return Some(("litellm_params", ANOTHER_SERVER));
    }
    REFUSED.iter().copied().find(|(refused, _)| is_variant(name, refused))
}

/// Returns the reason if the value of a field that a vendor prices by its value is refused.
pub(super) fn value_reason(field: &str, value: &str) -> Option<&'static str> {
    let is_priced = match field {
        "speed" => value == "standard",
        "inference_geo" => matches!(value, "global" | "not_available"),
        _ => true,
    };
    (!is_priced).then_some(UNKNOWN_PRICE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_field_is_found_in_any_case() {
        for name in ["models", "Models", "FALLBACKS", "fallbac\u{212a}s", "LiteLLM_params", "extra_body"] {
            assert!(reason(name).is_some(), "{name}");
        }
        for name in ["model", "messages", "metadata", "tools", "litellm", "thinking"] {
            assert!(reason(name).is_none(), "{name}");
        }
    }
}
