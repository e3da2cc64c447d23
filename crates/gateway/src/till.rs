//! The one place where a call is paid for: hold before it is sent, settle after it ended.
//!
//! Every route that reaches an upstream passes here, so nothing can be called past a limit.
//!
//! Not here: where the money is kept. A ledger takes the hold and the settlement over from this file.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use protocol::Usage;

use crate::{
    endpoint::Endpoint,
    identity::Identity,
    price::{Price, Prices},
    refusal::Refusal,
};

/// Keeps what one session may still use.
pub(crate) struct Till {
    prices: Arc<Prices>,
    requests: AtomicU64,
}

/// A call that was let through, at a price that no later change touches.
#[derive(Debug)]
pub(crate) struct Hold {
    price: Price,
}

impl Till {
    pub(crate) fn new(prices: Arc<Prices>) -> Self {
        Self { prices, requests: AtomicU64::new(0) }
    }

    /// Lets one call through, or says why not. Check and count are one step, so calls at the same time
    /// cannot pass together.
    pub(crate) fn hold(&self, identity: &Identity, endpoint: Endpoint, model: &str) -> Result<Hold, Refusal> {
        let price = self.price(identity, endpoint, model)?;
        if let Some(limit) = identity.limits.max_requests {
            self.requests
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| (taken < limit).then_some(taken + 1))
                .map_err(|_| Refusal::RequestsSpent { limit })?;
        }
        Ok(Hold { price })
    }

    fn price(&self, identity: &Identity, endpoint: Endpoint, model: &str) -> Result<Price, Refusal> {
        if identity.upstream.is_free() || !endpoint.is_charged() {
            return Ok(Price::FREE);
        }
        let model = identity.upstream.resolve(model);
        self.prices.of(&model).cloned().ok_or(Refusal::PriceUnknown(model))
    }
}

impl Hold {
    /// What the call cost, in pico-dollars.
    pub(crate) fn settle(&self, usage: &Usage) -> i64 {
        self.price.cost_picos(usage)
    }
}
