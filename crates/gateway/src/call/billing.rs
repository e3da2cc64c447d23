//! Billing: the only place that decides how much a call holds in the ledger and how much it is charged.
//!
//! Every call that reaches an upstream is held here first, so no call can pass a budget. The hold is the most that the
//! call can cost. A call whose cost is unknown keeps its hold.
//!
//! Not here: the ledger itself (`store`), or the events in the journal (`call.rs`).

use std::sync::Arc;

use protocol::{CallId, Usage};
use store::{CallCharge, CallProgress, CallSource, Ledger, LedgerOperation, UsageLimit};

use super::CallOutcome;
use crate::{
    endpoint::ModelEndpoint,
    identity::GatewayIdentity,
    price::{ModelPrice, PriceTable},
    refusal::CallRefusal,
    request_fields::RequestFields,
};

/// The name of this program in the ledger, as the system that metered a call.
const SYSTEM: &str = "viv";
/// The price hash of a call that used no price table.
const FREE: &str = "free";

/// Prices, ledger and budgets of a host.
#[derive(Clone)]
pub(crate) struct Billing {
    pub(crate) prices: Arc<PriceTable>,
    pub(crate) ledger: Arc<dyn Ledger>,
    /// The budgets of the host. Each identity adds its own.
    pub(crate) budgets: Arc<[UsageLimit]>,
}

/// The bill of one call. Its price is fixed when the call is held.
pub(super) struct CallBill {
    ledger: Arc<dyn Ledger>,
    call: CallId,
    price: ModelPrice,
    free: bool,
}

impl Billing {
    /// Returns the bill of a call and the ledger operation that holds it. The call may be sent only after the ledger
    /// has accepted that operation.
    ///
    /// Fails if the model has no known price.
    pub(super) fn hold(
        &self,
        identity: &GatewayIdentity,
        endpoint: ModelEndpoint,
        fields: &RequestFields,
        call: &CallId,
    ) -> Result<(CallBill, LedgerOperation), CallRefusal> {
        let model = identity.upstream.resolve(&fields.model);
        let free = identity.upstream.is_free() || !endpoint.is_charged();
        let price = if free { ModelPrice::FREE } else { self.price(&model)? };
        let picos = u64::try_from(price.max_cost_picos(&fields.bound)).unwrap_or(0);
        let hold = store::CallHold {
            call: call.clone(),
            source: CallSource { system: SYSTEM.into(), run: identity.run.clone(), attempt: identity.attempt },
            session: identity.session.clone(),
            account: identity.account.clone(),
            user: identity.user.clone(),
            key: identity.key.clone(),
            agent: identity.agent.clone(),
            model,
            price_hash: if free { FREE.into() } else { self.prices.version().clone() },
            picos,
            limits: identity.budgets.iter().chain(&*self.budgets).cloned().collect(),
            // The journal has the request before it is sent, so it tells whether a call of a dead host was sent.
            sent: true,
            fresh: true,
        };
        let operation = LedgerOperation::Hold(Box::new(hold));
        Ok((CallBill { ledger: self.ledger.clone(), call: call.clone(), price, free }, operation))
    }

    fn price(&self, model: &str) -> Result<ModelPrice, CallRefusal> {
        self.prices.get(model).cloned().ok_or_else(|| CallRefusal::PriceUnknown(model.to_owned()))
    }
}

impl CallBill {
    /// Returns whether the call is free, regardless of its usage.
    pub(super) fn is_free(&self) -> bool {
        self.free
    }

    /// Returns the cost of `usage` in pico-dollars.
    pub(super) fn cost_picos(&self, usage: &Usage) -> i64 {
        self.price.cost_picos(usage)
    }

    /// Notes in the ledger that the response is arriving. The note only informs readers, so nothing waits for it.
    pub(super) fn mark_streaming(&self) {
        drop(self.ledger.advance(self.call.clone(), CallProgress::Streaming));
    }

    /// Returns the ledger operation that closes the call.
    pub(super) fn settlement(&self, outcome: &CallOutcome) -> LedgerOperation {
        let call = self.call.clone();
        match outcome {
            CallOutcome::Settled(usage) => {
                let picos = u64::try_from(self.cost_picos(usage)).unwrap_or(0);
                LedgerOperation::Settle(call, CallCharge { usage: *usage, picos })
            }
            CallOutcome::Failed(reason) => LedgerOperation::Fail(call, reason.clone()),
            CallOutcome::Unknown => LedgerOperation::Advance(call, CallProgress::Lost),
        }
    }

    /// Closes the call in the ledger without waiting for confirmation.
    pub(super) fn settle_now(&self, outcome: &CallOutcome) {
        drop(self.ledger.submit(vec![self.settlement(outcome)]));
    }
}
