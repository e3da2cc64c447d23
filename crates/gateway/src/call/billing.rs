//! Billing: the only place that decides how much a call holds in the ledger and how much it is charged.
//!
//! Every call that reaches an upstream is held here first, so no call can pass a budget. The hold covers the call
//! at the prices of the table, as far as the request bounds it. A call whose cost is unknown keeps its hold.
//!
//! Not here: the parts of a hold (`hold_plan.rs`), the ledger itself (`store`), or the events in the journal (`call.rs`).

use std::sync::Arc;

use protocol::CallId;
use store::{CallCharge, CallProgress, CallSource, HoldChange, Ledger, LedgerOperation, LedgerReply, UsageLimit};

use super::{CallOutcome, SendProgress, hold_plan::HoldPlan, hold_queue::HoldQueue};
use crate::{
    endpoint::ModelEndpoint,
    identity::GatewayIdentity,
    meter::MeterReading,
    price::{ModelPrice, PriceTable, RateTable, is_same_model},
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
    /// The calls that wait for money that other calls hold.
    pub(crate) queue: Arc<HoldQueue>,
}

/// The bill of one call. Its price is fixed when the call is held.
pub(super) struct CallBill {
    billing: Billing,
    call: CallId,
    /// The requested model, as the upstream names it.
    model: String,
    price: Arc<ModelPrice>,
    service_tier: Option<String>,
    plan: HoldPlan,
    free: bool,
}

impl Billing {
    /// Returns the bill of a call and the ledger operation that holds it. The call may be sent only after the ledger
    /// has accepted that operation.
    ///
    /// Fails if the price of the model, the service tier or a search is not known.
    pub(super) fn hold(
        &self,
        identity: &GatewayIdentity,
        endpoint: ModelEndpoint,
        fields: &RequestFields,
        call: &CallId,
    ) -> Result<(CallBill, LedgerOperation), CallRefusal> {
        let model = identity.upstream.resolve(&fields.model);
        let free = identity.upstream.is_free() || !endpoint.is_charged();
        let price = if free { ModelPrice::free() } else { self.price(&model)? };
        let service_tier = fields.service_tier.clone().filter(|_| !free);
        let service = priced_service(&price, &model, service_tier.as_deref())?;
        if fields.searches > 0 && price.search_picos().is_none() {
            let reason = format!("the price of a web search with the model `{model}` is not known");
            return Err(CallRefusal::FieldRefused { field: "tools".to_owned(), reason });
        }
        let plan = HoldPlan::new(&price, service, fields);
        let hold = store::CallHold {
            call: call.clone(),
            source: CallSource { system: SYSTEM.into(), run: identity.run.clone(), attempt: identity.attempt },
            session: identity.session.clone(),
            account: identity.account.clone(),
            user: identity.user.clone(),
            key: identity.key.clone(),
            agent: identity.agent.clone(),
            model: model.clone(),
            price_hash: if free { FREE.into() } else { self.prices.version().clone() },
            picos: plan.picos(),
            limits: self.limits(identity),
            // The journal has the request before it is sent, so it tells whether a call of a dead host was sent.
            sent: true,
            fresh: true,
        };
        let bill = CallBill { billing: self.clone(), call: call.clone(), model, price, service_tier, plan, free };
        Ok((bill, LedgerOperation::Hold(Box::new(hold))))
    }

    fn limits(&self, identity: &GatewayIdentity) -> Vec<UsageLimit> {
        identity.budgets.iter().chain(&*self.budgets).cloned().collect()
    }

    fn price(&self, model: &str) -> Result<Arc<ModelPrice>, CallRefusal> {
        self.prices.shared(model).ok_or_else(|| CallRefusal::PriceUnknown(model.to_owned()))
    }
}

/// Returns the rates of the requested service tier. Fails if they are not known.
fn priced_service<'p>(price: &'p ModelPrice, model: &str, tier: Option<&str>) -> Result<&'p RateTable, CallRefusal> {
    price.service(tier).ok_or_else(|| CallRefusal::FieldRefused {
        field: "service_tier".to_owned(),
        reason: format!("the price of the tier `{}` of the model `{model}` is not known", tier.unwrap_or_default()),
    })
}

impl CallBill {
    /// Returns whether the call is free, regardless of its usage.
    pub(super) fn is_free(&self) -> bool {
        self.free
    }

    /// Returns the plan of the hold that the ledger has.
    pub(super) fn plan(&self) -> &HoldPlan {
        &self.plan
    }

    /// Notes that the ledger holds according to `plan`.
    pub(super) fn set_plan(&mut self, plan: HoldPlan) {
        self.plan = plan;
    }

    /// Returns the shown tokens that the hold covers; `None` if it covers every answer.
    pub(super) fn covered_tokens(&self) -> Option<u64> {
        if self.free { None } else { self.plan.covered_tokens() }
    }

    /// Asks the ledger to hold according to `plan`.
    pub(super) fn change_hold(&self, identity: &GatewayIdentity, plan: &HoldPlan) -> LedgerReply {
        let change = HoldChange { picos: plan.picos(), limits: self.billing.limits(identity) };
        self.billing.ledger.adjust(self.call.clone(), change)
    }

    /// Returns the notes about the request of the call. A free call needs none.
    pub(super) fn send_progress(&self) -> SendProgress {
        if self.free {
            return SendProgress::default();
        }
        SendProgress::new(self.billing.ledger.clone(), self.call.clone())
    }

    /// Tells the calls that wait for money that some may have become free.
    pub(super) fn notify_queue(&self) {
        self.billing.queue.notify();
    }

    /// Returns the cost in pico-dollars: the dearer of requested and answering model and service tier, and the fees.
    pub(super) fn cost_picos(&self, reading: &MeterReading) -> i64 {
        let answered = reading.model.as_deref().and_then(|model| self.billing.prices.shared(model));
        let models = std::iter::once(&self.price).chain(&answered).filter(|_| !self.free);
        let tiers = [self.service_tier.as_deref(), reading.service_tier.as_deref()];
        let cost = |price: &Arc<ModelPrice>| {
            let rates = tiers.map(|tier| price.service(tier).unwrap_or(price.standard()));
            let tokens = rates.map(|rates| rates.cost_picos(&reading.usage)).into_iter().max().unwrap_or(0);
            let searches = i64::try_from(reading.searches).unwrap_or(i64::MAX);
            tokens.saturating_add(price.search_picos().unwrap_or(0).saturating_mul(searches))
        };
        models.map(cost).max().unwrap_or(0)
    }

    /// Returns the model that answered, if its price is not known.
    pub(super) fn unpriced_model<'r>(&self, reading: &'r MeterReading) -> Option<&'r str> {
        let is_priced =
            |model: &str| self.free || is_same_model(&self.model, model) || self.billing.prices.get(model).is_some();
        reading.model.as_deref().filter(|model| !is_priced(model))
    }

    /// Notes in the ledger that the response is arriving. The note only informs readers, so nothing waits for it.
    pub(super) fn mark_streaming(&self) {
        drop(self.billing.ledger.advance(self.call.clone(), CallProgress::Streaming));
    }

    /// Returns the ledger operation that closes the call. `cost_picos` is the cost of a settled call; `estimated` says
    /// that it is the most that the call can have cost.
    pub(super) fn settlement(&self, outcome: &CallOutcome, cost_picos: i64, estimated: bool) -> LedgerOperation {
        let call = self.call.clone();
        match outcome {
            CallOutcome::Settled(usage) => {
                let picos = u64::try_from(cost_picos).unwrap_or(0);
                LedgerOperation::Settle(call, CallCharge { usage: *usage, picos, estimated })
            }
            CallOutcome::Failed(reason) => LedgerOperation::Fail(call, reason.clone()),
            CallOutcome::Unknown => LedgerOperation::Advance(call, CallProgress::Lost),
        }
    }

    /// Closes the call in the ledger without waiting for confirmation.
    pub(super) fn settle_now(&self, outcome: &CallOutcome, cost_picos: i64) {
        drop(self.billing.ledger.submit(vec![self.settlement(outcome, cost_picos, false)]));
        self.notify_queue();
    }
}
