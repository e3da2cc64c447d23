//! What tokens cost, in pico-dollars (10⁻¹² USD).
//!
//! Integers only: prices down to 62.5 nano-dollars a token exist, so nothing coarser is exact.

use std::collections::BTreeMap;

use protocol::Usage;

/// The price of one model, in pico-dollars a token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Price {
    /// A prompt token that no cache served.
    pub input_picos: i64,
    /// A token the model wrote.
    pub output_picos: i64,
    /// A prompt token read from the cache.
    pub cache_read_picos: i64,
    /// A prompt token written to the five-minute cache.
    pub cache_write_picos: i64,
    /// A prompt token written to the one-hour cache.
    pub cache_write_1h_picos: i64,
}

impl Price {
    /// The price of what costs nothing.
    pub const FREE: Self =
        Self { input_picos: 0, output_picos: 0, cache_read_picos: 0, cache_write_picos: 0, cache_write_1h_picos: 0 };

    /// What `usage` costs; stays at the largest amount instead of wrapping around.
    pub fn cost_picos(&self, usage: &Usage) -> i64 {
        let total: i128 = [
            (usage.input_tokens, self.input_picos),
            (usage.output_tokens, self.output_picos),
            (usage.cache_read_tokens, self.cache_read_picos),
            (usage.cache_write_tokens, self.cache_write_picos),
            (usage.cache_write_1h_tokens, self.cache_write_1h_picos),
        ]
        .into_iter()
        .map(|(tokens, picos)| i128::from(tokens) * i128::from(picos))
        .sum();
        i64::try_from(total).unwrap_or(i64::MAX)
    }
}

/// Prices by model name. A model that is not listed has no price, and a call for it is refused.
#[derive(Debug, Clone, Default)]
pub struct Prices {
    by_model: BTreeMap<String, Price>,
}

impl Prices {
    /// Names the price of `model`, in place of any other.
    #[must_use]
    pub fn with(mut self, model: impl Into<String>, price: Price) -> Self {
        self.by_model.insert(model.into(), price);
        self
    }

    /// The price of `model`, if it has one.
    pub fn of(&self, model: &str) -> Option<Price> {
        self.by_model.get(model).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_token_has_its_own_price() {
        let price = Price {
            input_picos: 3_000_000,
            output_picos: 15_000_000,
            cache_read_picos: 300_000,
            cache_write_picos: 3_750_000,
            cache_write_1h_picos: 6_000_000,
        };
        let usage = Usage {
            input_tokens: 1,
            output_tokens: 10,
            cache_read_tokens: 100,
            cache_write_tokens: 1_000,
            cache_write_1h_tokens: 10_000,
        };
        assert_eq!(price.cost_picos(&usage), 3_000_000 + 150_000_000 + 30_000_000 + 3_750_000_000 + 60_000_000_000);
    }

    #[test]
    fn an_absurd_count_does_not_wrap_around() {
        let usage = Usage { output_tokens: u64::MAX, ..Usage::default() };
        assert_eq!(Price { output_picos: i64::MAX, ..Price::FREE }.cost_picos(&usage), i64::MAX);
    }
}
