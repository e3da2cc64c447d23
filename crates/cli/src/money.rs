//! Dollar amounts, stored as whole pico-dollars; prices and budgets of the configuration.

use gateway::{HiddenReasoning, ModelPrice, PriceTable, TokenRates};
use protocol::ProblemCode;
use store::{LimitAmount, LimitScope, LimitWindow, UsageLimit};

use crate::config::{BudgetsSection, Config, PriceSection};
use crate::failure::Failure;

const PICOS: u64 = 1_000_000_000_000;

/// Parses dollars such as `2`, `2.50` or `0.000001` exactly; at most twelve decimals.
pub(crate) fn parse_usd(text: &str) -> Result<u64, String> {
    let wrong = || format!("invalid dollar amount `{text}`; write e.g. `2.50`");
    let (whole, rest) = text.strip_prefix('$').unwrap_or(text).split_once('.').unwrap_or((text, ""));
    let whole = whole.strip_prefix('$').unwrap_or(whole);
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || rest.len() > 12 || !digits(whole) || !digits(rest) {
        return Err(wrong());
    }
    let picos: u64 = format!("{rest:0<12}").parse().map_err(|_| wrong())?;
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    whole.checked_mul(PICOS).and_then(|whole| whole.checked_add(picos)).ok_or_else(wrong)
}

/// Formats dollars with at least two decimals and without loss.
pub(crate) fn usd(picos: u64) -> String {
    let digits = format!("{:012}", picos % PICOS);
    let (cents, finer) = digits.split_at(2);
    format!("{}.{cents}{}", picos / PICOS, finer.trim_end_matches('0'))
}

/// Returns the built-in prices, overridden by those of the configuration.
pub(crate) fn prices(config: &Config) -> Result<PriceTable, Failure> {
    let mut prices = PriceTable::built_in().map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
    for (model, section) in &config.file.prices {
        let price = price(section).map_err(|key| {
            config.invalid_value(&format!("prices.\"{model}\".{key}"), "must be a number of dollars, zero or more")
        })?;
        prices = prices.with_price(model, price);
    }
    Ok(prices)
}

/// Returns the budgets for all calls of the data directory.
pub(crate) fn budgets(section: &BudgetsSection) -> Vec<UsageLimit> {
    let money = |name, scope, window, picos: Option<u64>| {
        picos.map(|picos| UsageLimit { name, scope, window, max: LimitAmount::Picos(picos) })
    };
    let requests = section.session_requests_per_minute.map(|requests| UsageLimit {
        name: "budgets.session_requests_per_minute",
        scope: LimitScope::Session,
        window: LimitWindow::Minute,
        max: LimitAmount::Requests(requests),
    });
    let limits = [
        money("budgets.day_usd", LimitScope::Everything, LimitWindow::Day, section.day_usd),
        money("budgets.account_usd", LimitScope::Account, LimitWindow::Ever, section.account_usd),
        money("budgets.account_day_usd", LimitScope::Account, LimitWindow::Day, section.account_day_usd),
        requests,
    ];
    limits.into_iter().flatten().collect()
}

/// Returns the price of a section; the error is the key with an invalid value.
fn price(section: &PriceSection) -> Result<ModelPrice, &'static str> {
    let cache_write = section.cache_write.unwrap_or(section.input);
    let rates = TokenRates {
        input: picos_per_token(section.input).ok_or("input")?,
        output: picos_per_token(section.output).ok_or("output")?,
        cache_read: picos_per_token(section.cache_read.unwrap_or(section.input)).ok_or("cache_read")?,
        cache_write: picos_per_token(cache_write).ok_or("cache_write")?,
        cache_write_1h: picos_per_token(section.cache_write_1h.unwrap_or(cache_write)).ok_or("cache_write_1h")?,
    };
    let reasoning = if section.reasoning.unwrap_or(true) { HiddenReasoning::Always } else { HiddenReasoning::Never };
    let price = ModelPrice::flat(rates).with_reasoning(reasoning);
    Ok(section.max_output_tokens.into_iter().fold(price, ModelPrice::with_max_output_tokens))
}

/// Converts dollars per million tokens to pico-dollars per token; `None` if out of range.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked before")]
fn picos_per_token(dollars: f64) -> Option<i64> {
    (0.0..=1e6).contains(&dollars).then(|| (dollars * 1e6).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_are_parsed_exactly() {
        assert_eq!(parse_usd("2"), Ok(2 * PICOS));
        assert_eq!(parse_usd("$2.50"), Ok(2_500_000_000_000));
        assert_eq!(parse_usd("0.000000000001"), Ok(1));
        for bad in ["", ".5", "-1", "1e3", "1.0000000000001", "two", "99999999999999", "1.2.3"] {
            assert!(parse_usd(bad).is_err(), "`{bad}` was accepted");
        }
    }

    #[test]
    fn formatted_dollars_parse_to_the_same_amount() {
        for text in ["2.00", "0.0000000625", "1234.56"] {
            assert_eq!(usd(parse_usd(text).unwrap()), text);
        }
    }

    #[test]
    fn prices_are_dollars_per_million_tokens() {
        let section = PriceSection {
            input: 3.0,
            output: 15.0,
            cache_read: Some(0.3),
            cache_write: None,
            cache_write_1h: None,
            max_output_tokens: Some(9),
            reasoning: None,
        };
        let price = price(&section).unwrap();
        let expected = TokenRates {
            input: 3_000_000,
            output: 15_000_000,
            cache_read: 300_000,
            cache_write: 3_000_000,
            cache_write_1h: 3_000_000,
        };
        assert_eq!((price.rates(), price.max_output_tokens()), (expected, Some(9)));
        assert_eq!(super::price(&PriceSection { output: f64::NAN, ..section }), Err("output"));
    }
}
