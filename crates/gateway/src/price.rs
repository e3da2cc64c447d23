//! What tokens cost, in pico-dollars (10⁻¹² USD).
//!
//! Integers only: prices down to 62.5 nano-dollars a token exist, so nothing coarser is exact. A model
//! that is not in the table has no price, and a call for it is refused: unknown is never free.

mod table;

use std::collections::BTreeMap;

use protocol::Usage;
use serde::Deserialize;

pub use table::PriceTableError;

/// Pico-dollars a token, for each kind of token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct Rates {
    /// A prompt token that no cache served.
    pub input: i64,
    /// A token the model wrote.
    pub output: i64,
    /// A prompt token read from the cache.
    pub cache_read: i64,
    /// A prompt token written to the five-minute cache.
    pub cache_write: i64,
    /// A prompt token written to the one-hour cache.
    pub cache_write_1h: i64,
}

/// The price of one model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Price {
    rates: Rates,
    /// Rates of calls with longer prompts, shortest first.
    above: Vec<Tier>,
    max_output_tokens: Option<u64>,
}

/// Rates of every token of a call whose prompt is longer than so many tokens.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Tier {
    tokens: u64,
    #[serde(flatten)]
    rates: Rates,
}

impl Price {
    /// The price of what costs nothing.
    pub const FREE: Self = Self {
        rates: Rates { input: 0, output: 0, cache_read: 0, cache_write: 0, cache_write_1h: 0 },
        above: Vec::new(),
        max_output_tokens: None,
    };

    /// The same rates for a prompt of any length.
    pub fn flat(rates: Rates) -> Self {
        Self { rates, above: Vec::new(), max_output_tokens: None }
    }

    /// The most tokens the model writes in one answer, where that is known.
    pub fn max_output_tokens(&self) -> Option<u64> {
        self.max_output_tokens
    }

    /// The most that a call can cost whose prompt has at most `prompt` tokens and its answer `output`.
    pub fn bound_picos(&self, prompt: u64, output: u64) -> i64 {
        let reached = self.above.iter().filter(|tier| prompt > tier.tokens).map(|tier| tier.rates);
        let bound = |rates: Rates| {
            let dearest = rates.input.max(rates.cache_read).max(rates.cache_write).max(rates.cache_write_1h);
            let rates = Rates { input: dearest, ..rates };
            rates.cost_picos(&Usage { input_tokens: prompt, output_tokens: output, ..Usage::default() })
        };
        reached.chain([self.rates]).map(bound).max().unwrap_or(0)
    }

    /// What `usage` costs; stays at the largest amount instead of wrapping around.
    pub fn cost_picos(&self, usage: &Usage) -> i64 {
        let prompt =
            [usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens, usage.cache_write_1h_tokens];
        let prompt = prompt.into_iter().fold(0, u64::saturating_add);
        let tier = self.above.iter().rev().find(|tier| prompt > tier.tokens);
        tier.map_or(self.rates, |tier| tier.rates).cost_picos(usage)
    }
}

impl Rates {
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

/// Prices by model name.
#[derive(Debug, Clone, Default)]
pub struct Prices {
    by_model: BTreeMap<String, Price>,
    /// Identifies the table they come from, for the records.
    version: String,
}

impl Prices {
    /// The table that is built in.
    pub fn built_in() -> Result<Self, PriceTableError> {
        table::parse(table::BUILT_IN)
    }

    /// Names the price of `model`, in place of any other.
    #[must_use]
    pub fn with(mut self, model: impl Into<String>, price: Price) -> Self {
        self.by_model.insert(model.into(), price);
        self
    }

    /// The price of `model`, if it has one.
    pub fn of(&self, model: &str) -> Option<&Price> {
        self.by_model.get(model)
    }

    /// Every model that has a price.
    pub fn models(&self) -> impl Iterator<Item = (&str, &Price)> {
        self.by_model.iter().map(|(model, price)| (model.as_str(), price))
    }

    /// SHA-256 of the table they come from; empty where there is none.
    pub fn version(&self) -> &str {
        &self.version
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RATES: Rates = Rates {
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
        assert_eq!(Price::flat(RATES).cost_picos(&usage), expected);
    }

    #[test]
    fn a_long_prompt_moves_the_whole_call_into_its_tier() {
        let dear = Rates { input: 10, output: 100, ..Rates::default() };
        let above = vec![Tier { tokens: 1_000, rates: dear }];
        let price = Price { rates: Rates { input: 1, output: 10, ..Rates::default() }, above, max_output_tokens: None };
        let cost = |input_tokens| price.cost_picos(&Usage { input_tokens, output_tokens: 1, ..Usage::default() });
        assert_eq!((cost(1_000), cost(1_001)), (1_010, 10_110));
        // What the cache served is part of the prompt.
        let cached = Usage { input_tokens: 1, cache_read_tokens: 1_000, ..Usage::default() };
        assert_eq!(price.cost_picos(&cached), 10);
    }

    proptest! {
        #[test]
        fn no_call_costs_more_than_its_bound(
            cheap in prop::array::uniform5(0i64..1_000), dear in prop::array::uniform5(0i64..1_000), tokens in 0u64..100,
            counts in prop::array::uniform4(0u64..50), output_tokens in 0u64..50, room in 0u64..50,
        ) {
            let rates = |of: [i64; 5]| Rates { input: of[0], output: of[1], cache_read: of[2], cache_write: of[3], cache_write_1h: of[4] };
            let above = vec![Tier { tokens, rates: rates(dear) }];
            let price = Price { rates: rates(cheap), above, max_output_tokens: None };
            let usage = Usage {
                input_tokens: counts[0],
                output_tokens,
                cache_read_tokens: counts[1],
                cache_write_tokens: counts[2],
                cache_write_1h_tokens: counts[3],
            };
            let bound = price.bound_picos(counts.iter().sum::<u64>() + room, output_tokens + room);
            prop_assert!(price.cost_picos(&usage) <= bound);
        }
    }

    #[test]
    fn an_absurd_count_does_not_wrap_around() {
        let usage = Usage { output_tokens: u64::MAX, input_tokens: u64::MAX, cache_read_tokens: 1, ..Usage::default() };
        assert_eq!(Price::flat(Rates { output: i64::MAX, ..RATES }).cost_picos(&usage), i64::MAX);
    }
}
