//! Prices of models, in pico-dollars (10⁻¹² USD) a token.
//!
//! Amounts are integers of this small unit, because prices down to 62.5 nano-dollars a token exist. A model that is
//! not in the table has no price. Calls to it are refused, or limited by tokens if the policy allows that.

mod rates;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use protocol::Usage;
use serde::Deserialize;

pub(crate) use rates::RateTable;
pub use rates::TokenRates;
pub use table::PriceTableError;

/// The upper bound of a call's usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageBound {
    /// The most tokens of the prompt.
    pub input_tokens: u64,
    /// The most tokens of one answer. `None` means the limit of the model.
    pub output_tokens: Option<u64>,
    /// The number of answers.
    pub answers: u64,
    /// Whether the call may write to the one-hour cache.
    pub hour_cache: bool,
}

/// The assumed length of an answer if neither the request nor the table has a limit.
const DEFAULT_MAX_OUTPUT_TOKENS: u64 = 128_000;

/// The price of one model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelPrice {
    standard: RateTable,
    /// Rates of the service tiers that cost something else, by name.
    services: BTreeMap<String, RateTable>,
    max_output_tokens: Option<u64>,
    reasoning: HiddenReasoning,
    /// Pico-dollars for one web search by the vendor.
    search_picos: Option<i64>,
}

/// Whether a model bills tokens that its answer does not show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HiddenReasoning {
    /// Never.
    Never,
    /// If the request asks for it.
    Asked,
    /// Unless the request turns it off. Assumed for a model of which nothing is known.
    #[default]
    Always,
}

/// Names of the service tiers that cost the standard rates.
const STANDARD_SERVICES: [&str; 4] = ["auto", "default", "standard", "standard_only"];

impl ModelPrice {
    /// The price of a free model.
    pub const FREE: Self = Self {
        standard: RateTable::FREE,
        services: BTreeMap::new(),
        max_output_tokens: None,
        reasoning: HiddenReasoning::Never,
        search_picos: Some(0),
    };

    /// Returns the price of a free model as calls keep it.
    pub(crate) fn free() -> Arc<Self> {
        static FREE: LazyLock<Arc<ModelPrice>> = LazyLock::new(|| Arc::new(ModelPrice::FREE));
        FREE.clone()
    }

    /// Returns a price of one unit for each token. It measures calls without a known price in tokens.
    pub(crate) fn one_a_token() -> Arc<Self> {
        static ONE: LazyLock<Arc<ModelPrice>> = LazyLock::new(|| {
            let rates = TokenRates { input: 1, output: 1, cache_read: 1, cache_write: 1, cache_write_1h: 1 };
            Arc::new(ModelPrice::flat(rates).with_search_picos(0))
        });
        ONE.clone()
    }

    /// Makes a price with the same rates for prompts of any length.
    pub fn flat(rates: TokenRates) -> Self {
        Self { standard: RateTable::flat(rates), ..Self::default() }
    }

    /// Sets the most tokens that the model writes in one answer.
    #[must_use]
    pub fn with_max_output_tokens(mut self, tokens: u64) -> Self {
        self.max_output_tokens = Some(tokens);
        self
    }

    /// Sets whether the model bills tokens that its answer does not show.
    #[must_use]
    pub fn with_reasoning(mut self, reasoning: HiddenReasoning) -> Self {
        self.reasoning = reasoning;
        self
    }

    /// Adds the rates of a service tier.
    #[must_use]
    pub fn with_service(mut self, name: impl Into<String>, rates: TokenRates) -> Self {
        self.services.insert(name.into(), RateTable::flat(rates));
        self
    }

    /// Sets the pico-dollars for one web search by the vendor.
    #[must_use]
    pub fn with_search_picos(mut self, picos: i64) -> Self {
        self.search_picos = Some(picos);
        self
    }

    /// Returns the rates of a prompt below all tiers.
    pub fn rates(&self) -> TokenRates {
        self.standard.base()
    }

    /// Returns the most tokens that the model writes in one answer, if known.
    pub fn max_output_tokens(&self) -> Option<u64> {
        self.max_output_tokens
    }

    /// Returns whether the model bills tokens that its answer does not show.
    pub(crate) fn reasoning(&self) -> HiddenReasoning {
        self.reasoning
    }

    /// Returns the fee of one web search, if known.
    pub(crate) fn search_picos(&self) -> Option<i64> {
        self.search_picos
    }

    /// Returns the rates of a service tier; `None` if they are not known.
    pub(crate) fn service(&self, name: Option<&str>) -> Option<&RateTable> {
        match name {
            None => Some(&self.standard),
            Some(name) if STANDARD_SERVICES.contains(&name) => Some(&self.standard),
            Some(name) => self.services.get(name),
        }
    }

    /// Returns the standard rates.
    pub(crate) fn standard(&self) -> &RateTable {
        &self.standard
    }

    /// Returns the most tokens that all answers within `bound` can have.
    pub(crate) fn max_output(&self, bound: &UsageBound) -> u64 {
        let output = bound.output_tokens.or(self.max_output_tokens).unwrap_or(DEFAULT_MAX_OUTPUT_TOKENS);
        output.saturating_mul(bound.answers)
    }

    /// Returns the most that a call within `bound` can cost at the standard rates.
    pub fn max_cost_picos(&self, bound: &UsageBound) -> i64 {
        self.standard.max_cost_picos(bound.input_tokens, self.max_output(bound), bound.hour_cache)
    }

    /// Returns the cost of `usage` at the standard rates. Saturates instead of overflowing.
    pub fn cost_picos(&self, usage: &Usage) -> i64 {
        self.standard.cost_picos(usage)
    }
}

/// Returns whether an answer that names the model `answered` comes from the model `asked`: the same name, with or without
/// a date, a version or the name of a vendor.
pub(crate) fn is_same_model(asked: &str, answered: &str) -> bool {
    let bare = |name: &str| name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    let (asked, answered) = (bare(asked), bare(answered));
    let (short, long) = if asked.len() < answered.len() { (asked, answered) } else { (answered, asked) };
    let Some(rest) = long.strip_prefix(&*short).filter(|_| !short.is_empty()) else { return false };
    let is_version = |rest: &str| {
        let digits = rest.trim_start_matches(['-', '@', ':', 'v']);
        digits == "latest" || digits.len() >= 3 && digits.chars().all(|letter| letter.is_ascii_digit() || letter == '-')
    };
    rest.is_empty() || rest.starts_with(['-', '@', ':']) && is_version(rest)
}

/// The prices of models by name.
#[derive(Debug, Clone, Default)]
pub struct PriceTable {
    by_model: BTreeMap<String, Arc<ModelPrice>>,
    /// The digest that identifies the table in the ledger.
    version: Arc<str>,
    /// The source of the table.
    origin: PriceSource,
    /// Models whose price comes from the configuration.
    configured: BTreeSet<String>,
    /// The vendor of each model in the table.
    vendors: BTreeMap<String, String>,
}

/// The source of a price table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PriceSource {
    /// The public list that the table was made from.
    pub source: String,
    /// The day on which the list was retrieved.
    pub retrieved: String,
}

impl PriceTable {
    /// Returns the built-in table.
    pub fn built_in() -> Result<Self, PriceTableError> {
        table::parse(table::BUILT_IN)
    }

    /// Sets the price of `model`, as the configuration does.
    #[must_use]
    pub fn with_price(mut self, model: impl Into<String>, price: ModelPrice) -> Self {
        let model = model.into();
        // Another price makes another version of the table.
        self.version = table::version_with_price(&self.version, &model, &price).into();
        self.configured.insert(model.clone());
        self.by_model.insert(model, Arc::new(price));
        self
    }

    /// Returns whether the price of `model` comes from the configuration.
    pub fn is_configured(&self, model: &str) -> bool {
        self.configured.contains(model)
    }

    /// Returns the priced models of `vendor`, and all models whose price comes from the configuration.
    pub(crate) fn vendor_models(&self, vendor: &str) -> impl Iterator<Item = &str> {
        let is_listed = move |model: &&str| {
            self.is_configured(model) || self.vendors.get(*model).is_some_and(|owner| owner == vendor)
        };
        self.by_model.keys().map(String::as_str).filter(is_listed)
    }

    /// Returns the source of the built-in table.
    pub fn origin(&self) -> &PriceSource {
        &self.origin
    }

    /// Returns the price of `model`, if it has one.
    pub fn get(&self, model: &str) -> Option<&ModelPrice> {
        self.by_model.get(model).map(|price| &**price)
    }

    /// Returns the price of `model` as calls keep it, if it has one.
    pub(crate) fn shared(&self, model: &str) -> Option<Arc<ModelPrice>> {
        self.by_model.get(model).cloned()
    }

    /// Returns every model that has a price.
    pub fn models(&self) -> impl Iterator<Item = (&str, &ModelPrice)> {
        self.by_model.iter().map(|(model, price)| (model.as_str(), &**price))
    }

    /// Returns the SHA-256 of the table and the configured prices; empty for an empty table.
    pub fn version(&self) -> &Arc<str> {
        &self.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: TokenRates = TokenRates {
        input: 3_000_000,
        output: 15_000_000,
        cache_read: 300_000,
        cache_write: 3_750_000,
        cache_write_1h: 6_000_000,
    };

    #[test]
    fn each_kind_of_token_has_its_own_price() {
        let usage = Usage {
            input_tokens: 1,
            output_tokens: 10,
            cache_read_tokens: 100,
            cache_write_tokens: 1_000,
            cache_write_1h_tokens: 10_000,
        };
        let expected = 3_000_000 + 150_000_000 + 30_000_000 + 3_750_000_000 + 60_000_000_000;
        assert_eq!(ModelPrice::flat(RATES).cost_picos(&usage), expected);
    }

    #[test]
    fn configured_price_changes_the_version() {
        let built_in = PriceTable::built_in().unwrap();
        let named = built_in.clone().with_price("m", ModelPrice::flat(RATES));
        assert_ne!(named.version(), built_in.version());
        assert_eq!(named.version(), built_in.with_price("m", ModelPrice::flat(RATES)).version());
        assert!(named.is_configured("m") && !named.is_configured("gpt-5"));
    }

    #[test]
    fn answering_model_is_the_same_with_a_date_or_vendor() {
        let same = [
            ("gpt-4o", "gpt-4o-2024-08-06"),
            ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929"),
            ("claude-3-5-haiku-latest", "claude-3-5-haiku-20241022"),
            ("openai/gpt-4o", "gpt-4o"),
            ("gemini-2.5-pro", "models/gemini-2.5-pro-001"),
            ("m", "M"),
        ];
        for (asked, answered) in same {
            // An alias `-latest` has its own price in the table.
            let expected = !asked.ends_with("-latest");
            assert_eq!(is_same_model(asked, answered), expected, "{asked} {answered}");
        }
        for (asked, answered) in
            [("gpt-4o", "gpt-4o-mini"), ("cheap", "dear"), ("gpt-4", "gpt-4o"), ("a", ""), ("o1", "o1-pro")]
        {
            assert!(!is_same_model(asked, answered), "{asked} {answered}");
        }
    }

    #[test]
    fn cost_saturates_instead_of_overflowing() {
        let usage = Usage { output_tokens: u64::MAX, input_tokens: u64::MAX, cache_read_tokens: 1, ..Usage::default() };
        assert_eq!(ModelPrice::flat(TokenRates { output: i64::MAX, ..RATES }).cost_picos(&usage), i64::MAX);
    }
}
