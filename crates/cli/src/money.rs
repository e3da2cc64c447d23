//! Sums of money as people write and read them, kept as whole pico-dollars.

use gateway::{ModelPrice, PriceTable, TokenRates};
use protocol::ProblemCode;
use store::{LimitAmount, LimitScope, LimitWindow, UsageLimit};

use crate::config::{BudgetsSection, Config, PriceSection};
use crate::failure::Failure;

const PICOS: u64 = 1_000_000_000_000;

/// `2`, `2.50`, `0.000001`: dollars, without a rounding.
pub(crate) fn parse_usd(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no sum of dollars; write e.g. `2.50`");
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

/// Dollars with at least two digits behind the point, and as many as it takes.
pub(crate) fn usd(picos: u64) -> String {
    let digits = format!("{:012}", picos % PICOS);
    let (cents, finer) = digits.split_at(2);
    format!("{}.{cents}{}", picos / PICOS, finer.trim_end_matches('0'))
}

/// The built-in prices, with those of the configuration in their place.
pub(crate) fn prices(config: &Config) -> Result<PriceTable, Failure> {
    let mut prices = PriceTable::built_in().map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
    for (model, section) in &config.file.prices {
        let price = price(section).map_err(|key| {
            config.wrong(&format!("prices.\"{model}\".{key}"), "a price is a number of dollars, zero or more")
        })?;
        prices = prices.with(model, price);
    }
    Ok(prices)
}

/// What all calls of the data directory must fit into.
pub(crate) fn budgets(section: &BudgetsSection) -> Vec<UsageLimit> {
    let money = |name, scope, window, picos: Option<u64>| {
        picos.map(|picos| UsageLimit { name, scope, window, most: LimitAmount::Picos(picos) })
    };
    let requests = section.session_requests_per_minute.map(|requests| UsageLimit {
        name: "budgets.session_requests_per_minute",
        scope: LimitScope::Session,
        window: LimitWindow::Minute,
        most: LimitAmount::Requests(requests),
    });
    let limits = [
        money("budgets.day_usd", LimitScope::Everything, LimitWindow::Day, section.day_usd),
        money("budgets.account_usd", LimitScope::Account, LimitWindow::Ever, section.account_usd),
        money("budgets.account_day_usd", LimitScope::Account, LimitWindow::Day, section.account_day_usd),
        requests,
    ];
    limits.into_iter().flatten().collect()
}

/// The price of a section, or the key that is wrong.
fn price(section: &PriceSection) -> Result<ModelPrice, &'static str> {
    let cache_write = section.cache_write.unwrap_or(section.input);
    let rates = TokenRates {
        input: a_token(section.input).ok_or("input")?,
        output: a_token(section.output).ok_or("output")?,
        cache_read: a_token(section.cache_read.unwrap_or(section.input)).ok_or("cache_read")?,
        cache_write: a_token(cache_write).ok_or("cache_write")?,
        cache_write_1h: a_token(section.cache_write_1h.unwrap_or(cache_write)).ok_or("cache_write_1h")?,
    };
    let price = ModelPrice::flat(rates);
    Ok(section.max_output_tokens.into_iter().fold(price, ModelPrice::with_max_output_tokens))
}

/// Dollars a million tokens as pico-dollars a token.
#[expect(clippy::cast_possible_truncation, reason = "the number was held against its bounds before")]
fn a_token(dollars: f64) -> Option<i64> {
    (0.0..=1e6).contains(&dollars).then(|| (dollars * 1e6).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_are_read_to_the_last_digit() {
        assert_eq!(parse_usd("2"), Ok(2 * PICOS));
        assert_eq!(parse_usd("$2.50"), Ok(2_500_000_000_000));
        assert_eq!(parse_usd("0.000000000001"), Ok(1));
        for bad in ["", ".5", "-1", "1e3", "1.0000000000001", "two", "99999999999999", "1.2.3"] {
            assert!(parse_usd(bad).is_err(), "`{bad}` was accepted");
        }
    }

    #[test]
    fn dollars_are_written_as_they_are_read() {
        for text in ["2.00", "0.0000000625", "1234.56"] {
            assert_eq!(usd(parse_usd(text).unwrap()), text);
        }
    }

    #[test]
    fn a_price_is_dollars_a_million_tokens() {
        let section = PriceSection {
            input: 3.0,
            output: 15.0,
            cache_read: Some(0.3),
            cache_write: None,
            cache_write_1h: None,
            max_output_tokens: Some(9),
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
