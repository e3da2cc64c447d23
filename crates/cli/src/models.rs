//! `viv models`: what models cost, and where the prices come from.

use std::process::ExitCode;

use gateway::{ModelPrice, PriceTable};
use serde_json::json;

use crate::config::Config;
use crate::failure::Failure;
use crate::money;
use crate::table::{TextTable, print, print_json};

/// Carries out `viv models`.
pub(crate) fn carry_out(config: &Config, json: bool) -> Result<ExitCode, Failure> {
    let prices = money::prices(config)?;
    let origin = prices.origin();
    if json {
        let models: Vec<_> = prices.models().map(|(model, price)| as_json(&prices, model, price)).collect();
        print_json(&json!({"source": origin.source, "taken": origin.taken, "version": prices.version(),
            "unit": "pico-dollars a token", "models": models}))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = prices.models().map(|(model, price)| row(&prices, model, price)).collect();
    let head = ["MODEL", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "CACHE WRITE 1H", "MAX OUTPUT", "PRICE FROM"];
    print(&TextTable { head, rows }.text())?;
    anstream::eprintln!("dollars a million tokens · {} · taken {}", origin.source, origin.taken);
    Ok(ExitCode::SUCCESS)
}

fn source(prices: &PriceTable, model: &str) -> &'static str {
    if prices.is_named(model) { "viv.toml" } else { "built-in" }
}

fn row(prices: &PriceTable, model: &str, price: &ModelPrice) -> [String; 8] {
    let rates = price.rates();
    let a_million = |picos: i64| money::usd(picos.unsigned_abs().saturating_mul(1_000_000));
    [
        model.to_owned(),
        a_million(rates.input),
        a_million(rates.output),
        a_million(rates.cache_read),
        a_million(rates.cache_write),
        a_million(rates.cache_write_1h),
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
