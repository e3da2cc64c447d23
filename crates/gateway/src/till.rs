//! The one place where a call is paid for: held in the ledger before it is sent, closed after it ended.
//!
//! Every route that reaches an upstream passes here, so nothing can be called past a limit. What is held is
//! the most the call can cost; a call whose cost nobody learnt keeps its hold.
//!
//! Not here: where the money is kept (`store`), or what the journal says about a call (`record`).

use std::sync::Arc;

use protocol::{CallId, Usage};
use store::{CallCharge, CallProgress, CallSource, Ledger, LedgerOperation, UsageLimit};

use crate::{
    ask::Ask,
    endpoint::ModelEndpoint,
    identity::GatewayIdentity,
    outcome::Outcome,
    price::{ModelPrice, PriceTable},
    refusal::Refusal,
};

/// Names us in the ledger as the system that counted a call.
const SYSTEM: &str = "viv";
/// Stands where no price table was used.
const FREE: &str = "free";

/// Pays for calls.
#[derive(Clone)]
pub(crate) struct Till {
    pub(crate) prices: Arc<PriceTable>,
    pub(crate) ledger: Arc<dyn Ledger>,
    /// Of the host; each identity brings its own.
    pub(crate) budgets: Arc<[UsageLimit]>,
}

/// A call that is held, at a price that no later change touches.
pub(crate) struct Hold {
    ledger: Arc<dyn Ledger>,
    call: CallId,
    price: ModelPrice,
    free: bool,
}

impl Till {
    /// What one call is held for, and the step that holds it; or why it cannot be. Only when the step is taken may the
    /// call be sent.
    pub(crate) fn hold(
        &self,
        identity: &GatewayIdentity,
        endpoint: ModelEndpoint,
        ask: &Ask,
        call: &CallId,
    ) -> Result<(Hold, LedgerOperation), Refusal> {
        let model = identity.upstream.resolve(&ask.model);
        let free = identity.upstream.is_free() || !endpoint.is_charged();
        let price = if free { ModelPrice::FREE } else { self.price(&model)? };
        let picos = u64::try_from(price.max_cost_picos(&ask.bound)).unwrap_or(0);
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
            // The request is in the journal before it is sent, so a call that never was is told apart there.
            sent: true,
            fresh: true,
        };
        let step = LedgerOperation::Hold(Box::new(hold));
        Ok((Hold { ledger: self.ledger.clone(), call: call.clone(), price, free }, step))
    }

    fn price(&self, model: &str) -> Result<ModelPrice, Refusal> {
        self.prices.get(model).cloned().ok_or_else(|| Refusal::PriceUnknown(model.to_owned()))
    }
}

impl Hold {
    /// Whether the call costs nothing, whatever it uses.
    pub(crate) fn is_free(&self) -> bool {
        self.free
    }

    /// What `usage` costs, in pico-dollars.
    pub(crate) fn cost_picos(&self, usage: &Usage) -> i64 {
        self.price.cost_picos(usage)
    }

    /// Notes that the answer has begun. Nobody waits for it: it only tells a reader where a call is.
    pub(crate) fn streaming(&self) {
        drop(self.ledger.advance(self.call.clone(), CallProgress::Streaming));
    }

    /// The step that ends the call in the ledger.
    pub(crate) fn last_step(&self, outcome: &Outcome) -> LedgerOperation {
        let call = self.call.clone();
        match outcome {
            Outcome::Settled(usage) => {
                let picos = u64::try_from(self.cost_picos(usage)).unwrap_or(0);
                LedgerOperation::Settle(call, CallCharge { usage: *usage, picos })
            }
            Outcome::Failed(reason) => LedgerOperation::Fail(call, reason.clone()),
            Outcome::Lost => LedgerOperation::Advance(call, CallProgress::Lost),
        }
    }

    /// Ends the call in the ledger at once, for whom nobody can wait.
    pub(crate) fn close_here(&self, outcome: &Outcome) {
        drop(self.ledger.take(vec![self.last_step(outcome)]));
    }
}
