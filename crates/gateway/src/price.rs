//! Prices of models, in pico-dollars (10⁻¹² USD) a token.
//!
//! Amounts are integers of this small unit, because prices down to 62.5 nano-dollars a token exist. A model that is
//! not in the table has no price, and calls to it are refused.

mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::Usage;
use serde::Deserialize;

pub use table::PriceTableError;

/// Pico-dollars a token, for each kind of token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct TokenRates {
    /// A prompt token that no cache served.
    pub input: i64,
    /// A token of the response.
    pub output: i64,
    /// A prompt token read from the cache.
    pub cache_read: i64,
    /// A prompt token written to the five-minute cache.
    pub cache_write: i64,
    /// A prompt token written to the one-hour cache.
    pub cache_write_1h: i64,
}

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
    rates: TokenRates,
    /// Rates for longer prompts, in ascending order of length.
    tiers: Vec<PriceTier>,
    max_output_tokens: Option<u64>,
}

/// The rates of all tokens of a call whose prompt has more than `tokens` tokens.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct PriceTier {
    tokens: u64,
    #[serde(flatten)]
    rates: TokenRates,
}

impl ModelPrice {
    /// The price of a free model.
    pub const FREE: Self = Self {
        rates: TokenRates { input: 0, output: 0, cache_read: 0, cache_write: 0, cache_write_1h: 0 },
        tiers: Vec::new(),
        max_output_tokens: None,
    };

    /// Makes a price with the same rates for prompts of any length.
    pub fn flat(rates: TokenRates) -> Self {
        Self { rates, tiers: Vec::new(), max_output_tokens: None }
    }

    /// Sets the most tokens that the model writes in one answer.
    #[must_use]
    pub fn with_max_output_tokens(mut self, tokens: u64) -> Self {
        self.max_output_tokens = Some(tokens);
        self
    }

    /// Returns the rates of a prompt below all tiers.
    pub fn rates(&self) -> TokenRates {
        self.rates
    }

    /// Returns the most tokens that the model writes in one answer, if known.
    pub fn max_output_tokens(&self) -> Option<u64> {
        self.max_output_tokens
    }

    /// Returns the most that a call within `bound` can cost.
    pub fn max_cost_picos(&self, bound: &UsageBound) -> i64 {
        let output = bound.output_tokens.or(self.max_output_tokens).unwrap_or(DEFAULT_MAX_OUTPUT_TOKENS);
        let output = output.saturating_mul(bound.answers);
        let reached = self.tiers.iter().filter(|tier| bound.input_tokens > tier.tokens).map(|tier| tier.rates);
        let max_cost = |rates: TokenRates| {
            let input = rates.max_input_rate(bound.hour_cache);
            let usage = Usage { input_tokens: bound.input_tokens, output_tokens: output, ..Usage::default() };
            TokenRates { input, ..rates }.cost_picos(&usage)
        };
        std::iter::once(self.rates).chain(reached).map(max_cost).max().unwrap_or(0)
    }

    /// Returns the cost of `usage`. Saturates instead of overflowing.
    pub fn cost_picos(&self, usage: &Usage) -> i64 {
        let prompt =
            [usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens, usage.cache_write_1h_tokens];
        let prompt = prompt.into_iter().fold(0, u64::saturating_add);
        let tier = self.tiers.iter().rev().find(|tier| prompt > tier.tokens);
        tier.map_or(self.rates, |tier| tier.rates).cost_picos(usage)
    }
}

impl TokenRates {
    /// Returns the highest rate of a prompt token over all cache cases.
    fn max_input_rate(self, hour_cache: bool) -> i64 {
        let hour = if hour_cache { self.cache_write_1h } else { 0 };
        [self.input, self.cache_read, self.cache_write, hour].into_iter().max().unwrap_or(0)
    }

    fn cost_picos(self, usage: &Usage) -> i64 {
        let total: i128 = [
            (usage.input_tokens, self.input),
            (usage.output_tokens, self.output),
            (usage.cache_read_tokens, self.cache_read),
            (usage.cache_write_tokens, self.cache_write),
            (usage.cache_write_1h_tokens, self.cache_write_1h),
        ]
        .into_iter()
        .map(|(tokens, picos)| i128::from(tokens).saturating_mul(i128::from(picos)))
        .fold(0, i128::saturating_add);
        i64::try_from(total).unwrap_or(i64::MAX)
    }
}

/// The prices of models by name.
#[derive(Debug, Clone, Default)]
pub struct PriceTable {
    by_model: BTreeMap<String, ModelPrice>,
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
        self.by_model.insert(model, price);
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
        self.by_model.get(model)
    }

    /// Returns every model that has a price.
    pub fn models(&self) -> impl Iterator<Item = (&str, &ModelPrice)> {
        self.by_model.iter().map(|(model, price)| (model.as_str(), price))
    }

    /// Returns the SHA-256 of the table and the configured prices; empty for an empty table.
    pub fn version(&self) -> &Arc<str> {
        &self.version
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
    fn long_prompt_moves_the_whole_call_into_its_tier() {
        let expensive = TokenRates { input: 10, output: 100, ..TokenRates::default() };
        let tiers = vec![PriceTier { tokens: 1_000, rates: expensive }];
        let price = ModelPrice {
            rates: TokenRates { input: 1, output: 10, ..TokenRates::default() },
            tiers,
            max_output_tokens: None,
        };
        let cost = |input_tokens| price.cost_picos(&Usage { input_tokens, output_tokens: 1, ..Usage::default() });
        assert_eq!((cost(1_000), cost(1_001)), (1_010, 10_110));
        // Tokens from the cache count as part of the prompt.
        let cached = Usage { input_tokens: 1, cache_read_tokens: 1_000, ..Usage::default() };
        assert_eq!(price.cost_picos(&cached), 10);
    }

    proptest! {
        #[test]
        fn cost_is_never_above_its_bound(
            cheap in prop::array::uniform5(0i64..1_000), expensive in prop::array::uniform5(0i64..1_000), tokens in 0u64..100,
            counts in prop::array::uniform4(0u64..50), output_tokens in 0u64..50, room in 0u64..50,
        ) {
            let rates = |of: [i64; 5]| TokenRates { input: of[0], output: of[1], cache_read: of[2], cache_write: of[3], cache_write_1h: of[4] };
            let tiers = vec![PriceTier { tokens, rates: rates(expensive) }];
            let price = ModelPrice { rates: rates(cheap), tiers, max_output_tokens: None };
            let usage = Usage {
                input_tokens: counts[0],
                output_tokens,
                cache_read_tokens: counts[1],
                cache_write_tokens: counts[2],
                cache_write_1h_tokens: counts[3],
            };
            let bound = UsageBound {
                input_tokens: counts.iter().sum::<u64>() + room,
                output_tokens: Some(output_tokens + room),
                answers: 1,
                hour_cache: counts[3] > 0,
            };
            prop_assert!(price.cost_picos(&usage) <= price.max_cost_picos(&bound));
        }
    }

    #[test]
    fn maximum_cost_uses_the_highest_rates() {
        let expensive = TokenRates { input: 10, output: 100, cache_write_1h: 40, ..TokenRates::default() };
        let rates = TokenRates { input: 1, output: 10, cache_write: 2, ..TokenRates::default() };
        let tiers = vec![PriceTier { tokens: 1_000, rates: expensive }];
        let price = ModelPrice { rates, tiers, max_output_tokens: Some(50) };
        let most = |input_tokens, output_tokens, hour_cache| {
            price.max_cost_picos(&UsageBound { input_tokens, output_tokens, answers: 2, hour_cache })
        };
        assert_eq!(most(1_000, Some(5), false), 2_000 + 100);
        assert_eq!(most(1_001, None, false), 10_010 + 100 * 100);
        assert_eq!(most(1_001, None, true), 40_040 + 100 * 100);
        assert_eq!(most(u64::MAX, Some(u64::MAX), true), i64::MAX);
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
    fn cost_saturates_instead_of_overflowing() {
        let usage = Usage { output_tokens: u64::MAX, input_tokens: u64::MAX, cache_read_tokens: 1, ..Usage::default() };
        assert_eq!(ModelPrice::flat(TokenRates { output: i64::MAX, ..RATES }).cost_picos(&usage), i64::MAX);
    }
}
