//! `viv models`: list model prices and their source.

use std::process::ExitCode;

use gateway::{ModelPrice, PriceTable};
use serde_json::json;

use crate::config::Config;
use crate::failure::Failure;
use crate::money;
use crate::output::message;
use crate::table::{TextTable, print, print_json};

/// Runs `viv models`.
pub(crate) fn carry_out(config: &Config, json: bool) -> Result<ExitCode, Failure> {
    let prices = money::prices(config)?;
    let origin = prices.origin();
    if json {
        let models: Vec<_> = prices.models().map(|(model, price)| as_json(&prices, model, price)).collect();
        print_json(&json!({"source": origin.source, "taken": origin.retrieved, "version": prices.version(),
            "unit": "pico-dollars a token", "models": models}))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = prices.models().map(|(model, price)| row(&prices, model, price)).collect();
    let head = ["MODEL", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "CACHE WRITE 1H", "MAX OUTPUT", "PRICE FROM"];
    print(&TextTable { head, rows }.text())?;
    message!("dollars per million tokens · {} · as of {}", origin.source, origin.retrieved);
    Ok(ExitCode::SUCCESS)
}

fn source(prices: &PriceTable, model: &str) -> &'static str {
    if prices.is_configured(model) { "viv.toml" } else { "built-in" }
}

fn row(prices: &PriceTable, model: &str, price: &ModelPrice) -> [String; 8] {
    let rates = price.rates();
    let per_million = |picos: i64| money::usd(picos.unsigned_abs().saturating_mul(1_000_000));
    [
        model.to_owned(),
        per_million(rates.input),
        per_million(rates.output),
        per_million(rates.cache_read),
        per_million(rates.cache_write),
        per_million(rates.cache_write_1h),
        price.max_output_tokens().map_or_else(String::new, |tokens| tokens.to_string()),
        source(prices, model).to_owned(),
    ]
}

fn as_json(prices: &PriceTable, model: &str, price: &ModelPrice) -> serde_json::Value {
    let rates = price.rates();
    json!({"model": model, "input": rates.input, "output": rates.output, "cache_read": rates.cache_read,
        "cache_write": rates.cache_write, "cache_write_1h": rates.cache_write_1h,
        "max_output_tokens": price.max_output_tokens(), "from": source(prices, model)})
}
