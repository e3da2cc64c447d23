//! The models that a client may use, in the format of its API.
//!
//! A call to a listed model is not refused: the policy allows the model, and the model has a price or is free.

use policy::Action;
use serde_json::{Value, json};

use crate::{endpoint::ApiDialect, identity::GatewayIdentity, price::PriceTable};

/// Returns the models that `identity` may use: the configured models of its upstream, then those of the vendor.
pub(crate) fn allowed_models(identity: &GatewayIdentity, prices: &PriceTable) -> Vec<String> {
    let upstream = &identity.upstream;
    let mut names = upstream.models();
    if let Some(vendor) = upstream.vendor() {
        let more: Vec<&str> = prices.vendor_models(vendor).filter(|model| !is_in(&names, model)).collect();
        names.extend(more.into_iter().map(str::to_owned));
    }
    let is_allowed = |model: &str| {
        identity.policy.as_ref().is_none_or(|policy| policy.decide(&Action::Model(model.to_owned())).is_allowed())
    };
    let is_served = |model: &str| upstream.is_free() || prices.get(&upstream.resolve(model)).is_some();
    names.retain(|model| is_allowed(model) && is_served(model));
    names
}

fn is_in(names: &[String], model: &str) -> bool {
    names.iter().any(|name| name == model)
}

/// Returns the response with a list of models.
pub(crate) fn list(dialect: ApiDialect, names: &[String]) -> Value {
    let models: Vec<Value> = names.iter().map(|name| one(dialect, name)).collect();
    match dialect {
        ApiDialect::Anthropic => {
            json!({"data": models, "has_more": false, "first_id": names.first(), "last_id": names.last()})
        }
        ApiDialect::Openai => json!({"object": "list", "data": models}),
        ApiDialect::Gemini => json!({"models": models}),
    }
}

/// Returns the response with one model.
pub(crate) fn one(dialect: ApiDialect, name: &str) -> Value {
    match dialect {
        ApiDialect::Anthropic => {
            json!({"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"})
        }
        ApiDialect::Openai => json!({"id": name, "object": "model", "created": 0, "owned_by": "vivarium"}),
        ApiDialect::Gemini => json!({"name": format!("models/{name}"), "displayName": name,
            "supportedGenerationMethods": ["generateContent", "streamGenerateContent"]}),
    }
}
