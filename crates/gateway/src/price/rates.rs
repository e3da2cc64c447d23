//! The rates of one model in one service tier.

use protocol::Usage;
use serde::Deserialize;

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

/// The rates for prompts of any length.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct RateTable {
    #[serde(flatten)]
    rates: TokenRates,
    /// Rates for longer prompts, in ascending order of length.
    #[serde(default, rename = "above")]
    tiers: Vec<PriceTier>,
}

/// The rates of all tokens of a call whose prompt has more than `tokens` tokens.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct PriceTier {
    tokens: u64,
    #[serde(flatten)]
    rates: TokenRates,
}

impl RateTable {
    pub(super) const FREE: Self = Self {
        rates: TokenRates { input: 0, output: 0, cache_read: 0, cache_write: 0, cache_write_1h: 0 },
        tiers: Vec::new(),
    };

    pub(super) fn flat(rates: TokenRates) -> Self {
        Self { rates, tiers: Vec::new() }
    }

    /// Returns the table with its tiers in ascending order.
    pub(super) fn sorted(mut self) -> Self {
        self.tiers.sort_by_key(|tier| tier.tokens);
        self
    }

    pub(super) fn base(&self) -> TokenRates {
        self.rates
    }

    /// Returns the most that a call with that many tokens can cost, over all cache cases and tiers that it can reach.
    pub(crate) fn max_cost_picos(&self, input_tokens: u64, output_tokens: u64, hour_cache: bool) -> i64 {
        let reached = self.tiers.iter().filter(|tier| input_tokens > tier.tokens).map(|tier| tier.rates);
        let max_cost = |rates: TokenRates| {
            let input = rates.max_input_rate(hour_cache);
            let usage = Usage { input_tokens, output_tokens, ..Usage::default() };
            TokenRates { input, ..rates }.cost_picos(&usage)
        };
        std::iter::once(self.rates).chain(reached).map(max_cost).max().unwrap_or(0)
    }

    /// Returns the cost of `usage`. Saturates instead of overflowing.
    pub(crate) fn cost_picos(&self, usage: &Usage) -> i64 {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn long_prompt_moves_the_whole_call_into_its_tier() {
        let expensive = TokenRates { input: 10, output: 100, ..TokenRates::default() };
        let tiers = vec![PriceTier { tokens: 1_000, rates: expensive }];
        let price = RateTable { rates: TokenRates { input: 1, output: 10, ..TokenRates::default() }, tiers };
        let cost = |input_tokens| price.cost_picos(&Usage { input_tokens, output_tokens: 1, ..Usage::default() });
        assert_eq!((cost(1_000), cost(1_001)), (1_010, 10_110));
        // Tokens from the cache count as part of the prompt.
        let cached = Usage { input_tokens: 1, cache_read_tokens: 1_000, ..Usage::default() };
        assert_eq!(price.cost_picos(&cached), 10);
    }

    #[test]
    fn maximum_cost_uses_the_highest_rates() {
        let expensive = TokenRates { input: 10, output: 100, cache_write_1h: 40, ..TokenRates::default() };
        let rates = TokenRates { input: 1, output: 10, cache_write: 2, ..TokenRates::default() };
        let price = RateTable { rates, tiers: vec![PriceTier { tokens: 1_000, rates: expensive }] };
        assert_eq!(price.max_cost_picos(1_000, 10, false), 2_000 + 100);
        assert_eq!(price.max_cost_picos(1_001, 100, false), 10_010 + 100 * 100);
        assert_eq!(price.max_cost_picos(1_001, 100, true), 40_040 + 100 * 100);
        assert_eq!(price.max_cost_picos(u64::MAX, u64::MAX, true), i64::MAX);
    }

    proptest! {
        #[test]
        fn cost_is_never_above_its_bound(
            cheap in prop::array::uniform5(0i64..1_000), expensive in prop::array::uniform5(0i64..1_000), tokens in 0u64..100,
            counts in prop::array::uniform4(0u64..50), output_tokens in 0u64..50, room in 0u64..50,
        ) {
            let rates = |of: [i64; 5]| TokenRates { input: of[0], output: of[1], cache_read: of[2], cache_write: of[3], cache_write_1h: of[4] };
            let price = RateTable { rates: rates(cheap), tiers: vec![PriceTier { tokens, rates: rates(expensive) }] };
            let usage = Usage {
                input_tokens: counts[0],
                output_tokens,
                cache_read_tokens: counts[1],
                cache_write_tokens: counts[2],
                cache_write_1h_tokens: counts[3],
            };
            let most = price.max_cost_picos(counts.iter().sum::<u64>() + room, output_tokens + room, counts[3] > 0);
            prop_assert!(price.cost_picos(&usage) <= most);
        }
    }
}
