//! The parser for the file of a price table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::Digest;
use serde::Deserialize;

use super::{HiddenReasoning, ModelPrice, PriceSource, PriceTable, RateTable, TokenRates};

/// The built-in table, made by `scripts/update-prices.py`. It starts with its source, date and licence.
pub(super) const BUILT_IN: &str = include_str!("../../prices/prices.json");

/// The error of an invalid price table.
#[derive(Debug, thiserror::Error)]
#[error("invalid price table")]
pub struct PriceTableError(#[from] serde_json::Error);

#[derive(Deserialize)]
struct PriceFile {
    source: String,
    taken: String,
    models: BTreeMap<String, PriceRow>,
}

#[derive(Deserialize)]
struct PriceRow {
    vendor: String,
    #[serde(flatten)]
    standard: RateTable,
    #[serde(default)]
    service: BTreeMap<String, RateTable>,
    #[serde(default = "never")]
    reasoning: HiddenReasoning,
    search: Option<i64>,
    max_output_tokens: Option<u64>,
}

/// The list marks every model that reasons.
fn never() -> HiddenReasoning {
    HiddenReasoning::Never
}

/// Parses a table.
pub(super) fn parse(text: &str) -> Result<PriceTable, PriceTableError> {
    let table: PriceFile = serde_json::from_str(text)?;
    let vendors = table.models.iter().map(|(model, row)| (model.clone(), row.vendor.clone())).collect();
    let by_model = table.models.into_iter().map(|(model, row)| (model, Arc::new(row.into()))).collect();
    let origin = PriceSource { source: table.source, retrieved: table.taken };
    Ok(PriceTable {
        by_model,
        version: Digest::of(text.as_ref()).to_string().into(),
        origin,
        configured: BTreeSet::new(),
        vendors,
    })
}

/// Returns the version of a table after the price of `model` was set.
pub(super) fn version_with_price(version: &str, model: &str, price: &ModelPrice) -> String {
    let TokenRates { input, output, cache_read, cache_write, cache_write_1h } = price.rates();
    let rates = format!("{input} {output} {cache_read} {cache_write} {cache_write_1h} {:?}", price.max_output_tokens);
    Digest::of(format!("{version}\n{model}\n{rates}").as_bytes()).to_string()
}

impl From<PriceRow> for ModelPrice {
    fn from(row: PriceRow) -> Self {
        Self {
            standard: row.standard.sorted(),
            services: row.service.into_iter().map(|(name, rates)| (name, rates.sorted())).collect(),
            max_output_tokens: row.max_output_tokens,
            reasoning: row.reasoning,
            search_picos: row.search,
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::Usage;

    use super::*;

    #[test]
    fn built_in_table_has_the_published_prices() {
        let prices = parse(BUILT_IN).unwrap();
        let million = Usage { input_tokens: 100_000, output_tokens: 100_000, ..Usage::default() };
        // 3 USD and 15 USD a million tokens.
        let picos = 100_000 * 3_000_000 + 100_000 * 15_000_000;
        assert_eq!(prices.get("claude-sonnet-4-5").unwrap().cost_picos(&million), picos);
        assert!(prices.get("gpt-5").is_some() && prices.get("gemini-2.5-pro").is_some());
        assert_eq!(prices.get("claude-nobody-knows"), None);
        assert_eq!(prices.version().len(), 64);
        let (gpt, claude) = (prices.get("gpt-5").unwrap(), prices.get("claude-sonnet-4-5").unwrap());
        let output = |service| gpt.service(service).map(|rates| rates.base().output);
        assert_eq!([None, Some("flex"), Some("priority")].map(output), [10_000_000, 5_000_000, 20_000_000].map(Some));
        assert_eq!((output(Some("auto")), output(Some("batch"))), (Some(10_000_000), None));
        assert_eq!((gpt.reasoning(), claude.reasoning()), (HiddenReasoning::Always, HiddenReasoning::Asked));
        // 10 USD for a thousand searches.
        assert_eq!(claude.search_picos(), Some(10_000_000_000));
    }

    #[test]
    fn vendor_lists_its_own_models_and_configured_ones() {
        let prices = parse(BUILT_IN).unwrap().with_price("my-model", ModelPrice::FREE);
        let has = |vendor: &str, model: &str| prices.vendor_models(vendor).any(|name| name == model);
        assert!(has("anthropic", "claude-sonnet-4-5") && !has("anthropic", "gpt-5"));
        assert!(has("openai", "gpt-5") && has("gemini", "gemini-2.5-pro"));
        assert!(has("anthropic", "my-model") && has("nobody", "my-model"));
    }

    #[test]
    fn every_kind_of_token_in_the_built_in_table_has_a_price() {
        let one = [
            Usage { input_tokens: 1, ..Usage::default() },
            Usage { output_tokens: 1, ..Usage::default() },
            Usage { cache_read_tokens: 1, ..Usage::default() },
            Usage { cache_write_tokens: 1, ..Usage::default() },
            Usage { cache_write_1h_tokens: 1, ..Usage::default() },
        ];
        for (model, price) in parse(BUILT_IN).unwrap().models() {
            assert!(one.iter().all(|usage| price.cost_picos(usage) > 0), "{model}");
        }
    }
}
