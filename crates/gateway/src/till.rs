//! The one place where a call is paid for: hold before it is sent, settle after it ended.
//!
//! Every route that reaches an upstream passes here, so nothing can be called past a limit. A hold is the
//! most that a call can cost, and check and hold are one step: calls at the same time cannot together
//! spend more than there is.
//!
//! Not here: what survives a crash. A ledger takes the account over from this file.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::Usage;

use crate::{
    ask::Ask,
    endpoint::Endpoint,
    identity::Identity,
    price::{Price, Prices},
    refusal::Refusal,
};

/// Tokens that vendors add to a prompt for tools and the like, beyond what was sent.
const ADDED_TOKENS: u64 = 4_000;
/// The longest answer of a model whose longest is not known.
const OUTPUT_TOKENS: u64 = 128_000;

/// Keeps what one session may still use.
pub(crate) struct Till {
    prices: Arc<Prices>,
    account: Mutex<Account>,
}

#[derive(Debug, Default)]
struct Account {
    requests: u64,
    spent_picos: i64,
    held_picos: i64,
}

/// A call that was let through, at a price that no later change touches. Dropped without being settled,
/// it was never sent and costs nothing.
pub(crate) struct Hold {
    till: Arc<Till>,
    price: Price,
    picos: i64,
}

impl Till {
    pub(crate) fn new(prices: Arc<Prices>) -> Self {
        Self { prices, account: Mutex::default() }
    }

    /// Lets one call with a body of `bytes` through, or says why not.
    pub(crate) fn hold(
        self: &Arc<Self>,
        identity: &Identity,
        endpoint: Endpoint,
        ask: &Ask,
        bytes: usize,
    ) -> Result<Hold, Refusal> {
        let price = self.price(identity, endpoint, &ask.model)?;
        let output = ask.max_tokens.or(price.max_output_tokens()).unwrap_or(OUTPUT_TOKENS);
        // No token is shorter than a byte.
        let picos = price.bound_picos(bytes as u64 + ADDED_TOKENS, output);
        let mut account = self.account();
        if let Some(limit) = identity.limits.max_requests.filter(|limit| account.requests >= *limit) {
            return Err(Refusal::RequestsSpent { limit });
        }
        let needed = account.spent_picos.saturating_add(account.held_picos).saturating_add(picos);
        if identity.limits.budget_picos.is_some_and(|budget| needed > budget && picos > 0) {
            return Err(Refusal::BudgetSpent { spent_picos: account.spent_picos, needed_picos: picos });
        }
        account.requests += 1;
        account.held_picos = account.held_picos.saturating_add(picos);
        drop(account);
        Ok(Hold { till: self.clone(), price, picos })
    }

    fn price(&self, identity: &Identity, endpoint: Endpoint, model: &str) -> Result<Price, Refusal> {
        if identity.upstream.is_free() || !endpoint.is_charged() {
            return Ok(Price::FREE);
        }
        let model = identity.upstream.resolve(model);
        self.prices.of(&model).cloned().ok_or(Refusal::PriceUnknown(model))
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hold {
    /// Books what the call cost, in pico-dollars, and says it.
    pub(crate) fn settle(&self, usage: &Usage) -> i64 {
        let cost = self.price.cost_picos(usage);
        let mut account = self.till.account();
        account.spent_picos = account.spent_picos.saturating_add(cost);
        cost
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut account = self.till.account();
        account.held_picos = account.held_picos.saturating_sub(self.picos);
    }
}
