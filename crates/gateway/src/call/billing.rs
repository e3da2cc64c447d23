//! Billing: the only place that decides how much a call holds in the ledger and how much it is charged.
//!
//! Every call that reaches an upstream is held here first, so no call can pass a budget. The hold covers the call
//! at the prices of the table, as far as the request bounds it. A call whose cost is unknown keeps its hold.
//!
//! Not here: the parts of a hold (`hold_plan.rs`), the ledger itself (`store`), or the events in the journal (`call.rs`).

use std::sync::Arc;

use protocol::CallId;
use store::{
    CallCharge, CallProgress, CallSource, HoldChange, Ledger, LedgerOperation, LedgerReply, LimitAmount, LimitScope,
    UNPRICED_HASH, UsageLimit,
};

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
/// The price hash of a free call. A call without a known price has another one, [`UNPRICED_HASH`].
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
    basis: PriceBasis,
}

/// How the cost of a call is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PriceBasis {
    /// The call costs nothing, regardless of its usage.
    Free,
    /// The price table has the model.
    Priced,
    /// The price of the model is not known. The call is limited by its tokens.
    Unpriced,
}

impl PriceBasis {
    /// Returns whether `limit` applies to a call. The dollars of a session's policy cannot limit a call without a known
    /// price, and tokens limit no other call.
    fn obeys(self, limit: &UsageLimit) -> bool {
        match limit.max {
            LimitAmount::Picos(_) => self != Self::Unpriced,
            LimitAmount::Tokens(_) => self == Self::Unpriced,
            LimitAmount::Requests(_) => true,
        }
    }

    /// Returns the pico-dollars and the tokens of a hold according to `plan`.
    fn amounts(self, plan: &HoldPlan) -> (u64, u64) {
        if self == Self::Unpriced { (0, plan.picos()) } else { (plan.picos(), 0) }
    }
}

impl Billing {
    /// Returns the bill of a call and the ledger operation that holds it. The call may be sent only after the ledger
    /// has accepted that operation.
    ///
    /// Fails if the price of the service tier or a search is not known. Fails if the price of the model is not known,
    /// unless the policy allows such a model.
    pub(super) fn hold(
        &self,
        identity: &GatewayIdentity,
        endpoint: ModelEndpoint,
        fields: &RequestFields,
        call: &CallId,
    ) -> Result<(CallBill, LedgerOperation), CallRefusal> {
        let model = identity.upstream.resolve(&fields.model);
        let free = identity.upstream.is_free() || !endpoint.is_charged();
        let (basis, price) = if free { (PriceBasis::Free, ModelPrice::free()) } else { self.price(identity, &model)? };
        let service_tier = fields.service_tier.clone().filter(|_| basis == PriceBasis::Priced);
        let service = priced_service(&price, &model, service_tier.as_deref())?;
        if fields.searches > 0 && price.search_picos().is_none() {
            let reason = format!("the price of a web search with the model `{model}` is not known");
            return Err(CallRefusal::FieldRefused { field: "tools".to_owned(), reason });
        }
        let plan = HoldPlan::new(&price, service, fields);
        let (picos, tokens) = basis.amounts(&plan);
        let hold = store::CallHold {
            call: call.clone(),
            source: CallSource { system: SYSTEM.into(), run: identity.run.clone(), attempt: identity.attempt },
            session: identity.session.clone(),
            account: identity.account.clone(),
            user: identity.user.clone(),
            key: identity.key.clone(),
            agent: identity.agent.clone(),
            model: model.clone(),
            price_hash: match basis {
                PriceBasis::Free => FREE.into(),
                PriceBasis::Priced => self.prices.version().clone(),
                PriceBasis::Unpriced => UNPRICED_HASH.into(),
            },
            picos,
            tokens,
            limits: self.limits(identity, basis),
            // The journal has the request before it is sent, so it tells whether a call of a dead host was sent.
            sent: true,
            fresh: true,
        };
        let bill = CallBill { billing: self.clone(), call: call.clone(), model, price, service_tier, plan, basis };
        Ok((bill, LedgerOperation::Hold(Box::new(hold))))
    }

    fn limits(&self, identity: &GatewayIdentity, basis: PriceBasis) -> Vec<UsageLimit> {
        let limits = identity.budgets.iter().chain(&*self.budgets);
        limits.filter(|limit| basis.obeys(limit)).cloned().collect()
    }

    fn price(&self, identity: &GatewayIdentity, model: &str) -> Result<(PriceBasis, Arc<ModelPrice>), CallRefusal> {
        if let Some(price) = self.prices.shared(model) {
            return Ok((PriceBasis::Priced, price));
        }
        let refused = |reason| Err(CallRefusal::PriceUnknown { model: model.to_owned(), reason });
        if !identity.policy.as_ref().is_some_and(|policy| policy.allows_unpriced_models()) {
            return refused("the policy denies such models (`models.unpriced`)".to_owned());
        }
        // The policy gives up the dollar limit of its own session only. Dollar budgets of keys, accounts and the host
        // stay in force, and the cost of the call to them is not known.
        let is_held =
            |limit: &&UsageLimit| matches!(limit.max, LimitAmount::Picos(_)) && limit.scope != LimitScope::Session;
        match identity.budgets.iter().chain(&*self.budgets).find(is_held) {
            Some(limit) => refused(format!("the dollar budget `{}` needs a price", limit.name)),
            None => Ok((PriceBasis::Unpriced, ModelPrice::one_a_token())),
        }
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
        self.basis == PriceBasis::Free
    }

    /// Returns the requested model, as the upstream names it, if its price is not known.
    pub(super) fn model_without_price(&self) -> Option<&str> {
        (self.basis == PriceBasis::Unpriced).then_some(self.model.as_str())
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
        if self.is_free() { None } else { self.plan.covered_tokens() }
    }

    /// Asks the ledger to hold according to `plan`.
    pub(super) fn change_hold(&self, identity: &GatewayIdentity, plan: &HoldPlan) -> LedgerReply {
        let (picos, tokens) = self.basis.amounts(plan);
        let change = HoldChange { picos, tokens, limits: self.billing.limits(identity, self.basis) };
        self.billing.ledger.adjust(self.call.clone(), change)
    }

    /// Returns the notes about the request of the call. A free call needs none.
    pub(super) fn send_progress(&self) -> SendProgress {
        if self.is_free() {
            return SendProgress::default();
        }
        SendProgress::new(self.billing.ledger.clone(), self.call.clone())
    }

    /// Tells the calls that wait for money that some may have become free.
    pub(super) fn notify_queue(&self) {
        self.billing.queue.notify();
    }

    /// Returns the cost in pico-dollars: the dearer of requested and answering model and service tier, and the fees.
    /// Zero for a free call, and for one whose cost is not known.
    pub(super) fn cost_picos(&self, reading: &MeterReading) -> i64 {
        let answered = reading.model.as_deref().and_then(|model| self.billing.prices.shared(model));
        let models = std::iter::once(&self.price).chain(&answered).filter(|_| self.basis == PriceBasis::Priced);
        let tiers = [self.service_tier.as_deref(), reading.service_tier.as_deref()];
        let cost = |price: &Arc<ModelPrice>| {
            let rates = tiers.map(|tier| price.service(tier).unwrap_or(price.standard()));
            let tokens = rates.map(|rates| rates.cost_picos(&reading.usage)).into_iter().max().unwrap_or(0);
            let searches = i64::try_from(reading.searches).unwrap_or(i64::MAX);
            tokens.saturating_add(price.search_picos().unwrap_or(0).saturating_mul(searches))
        };
        models.map(cost).max().unwrap_or(0)
    }

    /// Returns the model that answered a call with a price, if its own price is not known.
    pub(super) fn unpriced_model<'r>(&self, reading: &'r MeterReading) -> Option<&'r str> {
        let is_priced = |model: &str| {
            self.basis != PriceBasis::Priced
                || is_same_model(&self.model, model)
                || self.billing.prices.get(model).is_some()
        };
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
