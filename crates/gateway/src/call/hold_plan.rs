//! The plan of a hold: how much a call holds at first, and how much more while its response arrives.
//!
//! Tokens that are billed without being shown, and every token of a response that is not streamed, are held before the
//! call is sent. The shown tokens of a stream are held in steps ahead of the stream.
//!
//! Not here: the bytes of the stream (`growth.rs`) and the ledger (`billing.rs`).

use std::time::Duration;

use protocol::Usage;

use crate::{
    price::{ModelPrice, RateTable},
    request_fields::RequestFields,
};

/// The shown tokens that a stream holds at first.
const FIRST_TOKENS: u64 = 8_192;
/// The shown tokens by which a hold grows.
const STEP_TOKENS: u64 = 16_384;
/// The most tokens that a vendor generates in a second for one answer. Bounds the hidden tokens of a cancelled call.
const MAX_TOKENS_PER_SECOND: u64 = 500;
/// The time in which a vendor notices that a connection was closed.
const CANCEL_TIME: Duration = Duration::from_secs(1);
/// A hold is reduced during a response only if that frees at least five cents. Less is not worth a write.
const MIN_REDUCTION_PICOS: u64 = 50_000_000_000;

/// The parts of one call's hold.
#[derive(Debug, Clone)]
pub(crate) struct HoldPlan {
    /// The rates that the call may be billed by. The dearest counts.
    rates: Vec<RateTable>,
    input_tokens: u64,
    hour_cache: bool,
    /// The prompt as the vendor counted it, if that is final.
    counted_prompt: Option<Usage>,
    /// Whether the vendor can add to the prompt after it reported the count.
    open_prompt: bool,
    /// The most tokens of all answers.
    max_output: u64,
    /// The most tokens that are billed and not shown.
    hidden: u64,
    /// Held for shown tokens.
    visible: u64,
    answers: u64,
    /// Held for searches.
    fees_picos: u64,
}

impl HoldPlan {
    /// Makes the plan of a call with these fields.
    pub(crate) fn new(price: &ModelPrice, service: &RateTable, fields: &RequestFields) -> Self {
        let (bound, max_output) = (&fields.bound, price.max_output(&fields.bound));
        let hidden = match fields.reasoning.hidden_tokens(price.reasoning()) {
            Some(tokens) if fields.stream => tokens.saturating_mul(bound.answers).min(max_output),
            _ => max_output,
        };
        let fee = u64::try_from(price.search_picos().unwrap_or(0)).unwrap_or(0);
        let mut rates = vec![price.standard().clone()];
        if service != price.standard() {
            rates.push(service.clone());
        }
        Self {
            rates,
            input_tokens: bound.input_tokens,
            hour_cache: bound.hour_cache,
            counted_prompt: None,
            open_prompt: fields.open_prompt || fields.searches > 0,
            max_output,
            hidden,
            visible: FIRST_TOKENS,
            answers: bound.answers,
            fees_picos: fee.saturating_mul(fields.searches),
        }
    }

    /// Returns the amount to hold, in the unit of the rates: pico-dollars, or tokens if the price is not known.
    pub(crate) fn picos(&self) -> u64 {
        let output_tokens = self.hidden.saturating_add(self.visible).min(self.max_output);
        let cost = |rates: &RateTable| match self.counted_prompt {
            Some(prompt) => rates.cost_picos(&Usage { output_tokens, ..prompt }),
            None => rates.max_cost_picos(self.input_tokens, output_tokens, self.hour_cache),
        };
        let most = self.rates.iter().map(cost).max().unwrap_or(0);
        u64::try_from(most).unwrap_or(0).saturating_add(self.fees_picos)
    }

    /// Returns the shown tokens that the hold covers; `None` if it covers every answer within the request's limits.
    pub(super) fn covered_tokens(&self) -> Option<u64> {
        (self.hidden.saturating_add(self.visible) < self.max_output).then_some(self.visible)
    }

    /// Returns the plan after one more step.
    pub(super) fn grown(&self) -> Self {
        Self { visible: self.visible.saturating_add(STEP_TOKENS), ..self.clone() }
    }

    /// Returns the plan that covers every answer.
    pub(super) fn complete(&self) -> Self {
        Self { visible: self.max_output, ..self.clone() }
    }

    /// Returns the plan extended by the tokens that `picos` pay for; `None` if they do not pay for one.
    pub(super) fn grown_by(&self, picos: u64) -> Option<Self> {
        let with = |visible| Self { visible, ..self.clone() };
        let step = self.grown();
        let most = self.picos().saturating_add(picos);
        let (mut fits, mut too_many) = (self.visible, step.visible);
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            if with(middle).picos() <= most { fits = middle } else { too_many = middle }
        }
        (fits > self.visible).then(|| with(fits))
    }

    /// Returns the plan with the vendor's count of the prompt, if that frees enough to be written.
    pub(super) fn with_counted_prompt(&self, usage: &Usage) -> Option<Self> {
        if self.open_prompt || self.counted_prompt.is_some() {
            return None;
        }
        let reduced = Self { counted_prompt: Some(*usage), ..self.clone() };
        (self.picos().saturating_sub(reduced.picos()) >= MIN_REDUCTION_PICOS).then_some(reduced)
    }

    /// Returns the most tokens that a cancelled call can have cost. `reported` is the vendor's last count and `shown`
    /// bounds the shown tokens, which the hold always covers.
    pub(super) fn cancelled_usage(&self, reported: Usage, shown: u64, elapsed: Duration) -> Usage {
        let generated = self.generated_tokens(elapsed);
        let shown = shown.min(self.covered_tokens().unwrap_or(u64::MAX));
        let output = shown.saturating_add(self.hidden.min(generated)).min(self.max_output.max(shown));
        let prompt_is_known = Usage { output_tokens: 0, ..reported } != Usage::default();
        let prompt =
            if prompt_is_known { reported } else { Usage { input_tokens: self.input_tokens, ..Usage::default() } };
        Usage { output_tokens: output.max(reported.output_tokens), ..prompt }
    }

    /// Returns the most tokens of a stream whose host died after `elapsed`, and their cost in pico-dollars. The shown
    /// part is not known, so all that the hold covers counts.
    pub(crate) fn cost_at_death(&self, elapsed: Duration) -> (Usage, u64) {
        let most = Self { hidden: self.hidden.min(self.generated_tokens(elapsed)), ..self.clone() };
        let output_tokens = most.hidden.saturating_add(most.visible).min(most.max_output);
        let usage = Usage { input_tokens: self.input_tokens, output_tokens, ..Usage::default() };
        (usage, most.picos())
    }

    /// Returns the most tokens of all answers that a vendor generates before it notices that the connection is closed.
    fn generated_tokens(&self, elapsed: Duration) -> u64 {
        let seconds = elapsed.saturating_add(CANCEL_TIME).as_secs().saturating_add(1);
        seconds.saturating_mul(MAX_TOKENS_PER_SECOND).saturating_mul(self.answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        price::{HiddenReasoning, TokenRates, UsageBound},
        request_fields::ReasoningRequest,
    };

    fn plan(stream: bool, output_tokens: Option<u64>, reasoning: ReasoningRequest) -> HoldPlan {
        let price = ModelPrice::flat(TokenRates { input: 1, output: 10, ..TokenRates::default() })
            .with_reasoning(HiddenReasoning::Asked)
            .with_max_output_tokens(128_000);
        let bound = UsageBound { input_tokens: 100, output_tokens, answers: 1, hour_cache: false };
        let fields = RequestFields {
            model: "m".to_owned(),
            stream,
            bound,
            service_tier: None,
            reasoning,
            searches: 0,
            open_prompt: false,
        };
        HoldPlan::new(&price, price.standard(), &fields)
    }

    #[test]
    fn stream_begins_small_and_everything_else_is_held_in_full() {
        let held = |plan: HoldPlan| (plan.picos(), plan.covered_tokens());
        let nothing = ReasoningRequest::Unspecified;
        assert_eq!(held(plan(true, None, nothing)), (100 + 81_920, Some(8_192)));
        assert_eq!(held(plan(true, Some(1_000), nothing)), (100 + 10_000, None));
        assert_eq!(held(plan(false, None, nothing)), (100 + 1_280_000, None));
        assert_eq!(held(plan(true, None, ReasoningRequest::Unlimited)), (100 + 1_280_000, None));
        assert_eq!(held(plan(true, None, ReasoningRequest::AtMost(32_000))), (100 + 401_920, Some(8_192)));
    }

    #[test]
    fn hold_grows_in_steps_or_by_the_rest_of_the_budget() {
        let first = plan(true, None, ReasoningRequest::Unspecified);
        assert_eq!(first.grown().picos() - first.picos(), 163_840);
        assert_eq!(first.complete().covered_tokens(), None);
        assert_eq!(first.grown_by(1_005).unwrap().picos() - first.picos(), 1_000);
        assert!(first.grown_by(9).is_none());
    }

    #[test]
    fn cancelled_call_costs_at_most_what_was_shown_and_what_time_allowed() {
        let usage = Usage { input_tokens: 7, output_tokens: 1, ..Usage::default() };
        let cost = |plan: HoldPlan, usage| plan.cancelled_usage(usage, 30, Duration::from_millis(100));
        let counted = cost(plan(true, None, ReasoningRequest::Unspecified), usage);
        assert_eq!((counted.input_tokens, counted.output_tokens), (7, 30));
        let hidden = cost(plan(true, None, ReasoningRequest::Unlimited), Usage::default());
        assert_eq!((hidden.input_tokens, hidden.output_tokens), (100, 30 + 1_000));
    }

    #[test]
    fn stream_of_a_dead_host_costs_the_hold_without_reasoning_that_had_no_time() {
        let plain = plan(true, None, ReasoningRequest::Unspecified);
        assert_eq!(plain.cost_at_death(Duration::from_secs(1)).1, plain.picos());
        let hidden = plan(true, None, ReasoningRequest::AtMost(32_000));
        let (usage, picos) = hidden.cost_at_death(Duration::from_secs(1));
        assert_eq!((usage.input_tokens, usage.output_tokens, picos), (100, 9_692, 100 + 96_920));
        assert_eq!(hidden.cost_at_death(Duration::from_secs(3_600)).1, hidden.picos());
    }
}
