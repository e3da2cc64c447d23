//! The growth of a hold while a stream arrives.
//!
//! The hold covers more tokens than the stream has shown. It grows ahead of the stream, and the stream waits only if the
//! ledger takes longer than the covered tokens. No byte is metered or forwarded that the hold does not cover: a read that
//! brings more is cut, and the rest waits. When no limit leaves room to grow, the call is cancelled and the rest dropped.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use store::{LedgerError, LedgerReply, LimitAmount, LimitExceeded};

use super::{ModelCall, hold_plan::HoldPlan};
use crate::{endpoint::ApiDialect, meter::visible_tokens, upstream::UpstreamFailure};

/// The hold grows when fewer covered tokens than this are left.
const GROW_BELOW: u64 = 4_096;
/// The call is cancelled when fewer covered tokens than this are left: the tokens on their way to us.
const CANCEL_BELOW: u64 = 512;
/// After a refusal, the hold is tried again when this many more tokens were shown.
const RETRY_TOKENS: u64 = 512;

/// The shown tokens of one stream, and the growth of its hold.
#[derive(Default)]
pub(super) struct HoldGrowth {
    /// The most tokens that the first `counted_bytes` of the body show.
    counted_tokens: u64,
    counted_bytes: usize,
    /// The plan that the ledger is asked for, and its reply.
    asked: Option<(HoldPlan, LedgerReply)>,
    /// After a refusal, the shown tokens at which the ledger is asked again.
    retry_at: u64,
    /// Whether the vendor's count of the prompt was looked at.
    saw_prompt: bool,
}

impl HoldGrowth {
    /// Returns an upper bound of the tokens that `body` shows. Counts exactly only if the bound matters.
    pub(super) fn shown_tokens(&mut self, dialect: ApiDialect, body: &[u8], enough: u64) -> u64 {
        let bound = |this: &Self| this.counted_tokens.saturating_add((body.len() - this.counted_bytes) as u64);
        if bound(self) > enough {
            let (tokens, length) = visible_tokens(dialect, &body[self.counted_bytes..]);
            self.counted_tokens = self.counted_tokens.saturating_add(tokens);
            self.counted_bytes += length;
        }
        bound(self)
    }

    /// Ready when the hold covers the shown tokens. Fails if it does not, and no limit leaves room to grow.
    pub(super) fn poll(
        &mut self,
        call: &mut ModelCall,
        dialect: ApiDialect,
        body: &[u8],
        context: &mut Context<'_>,
    ) -> Poll<Result<(), UpstreamFailure>> {
        loop {
            let refused = self.poll_reply(call, context);
            let Some(covered) = call.bill.covered_tokens() else { return Poll::Ready(Ok(())) };
            if let Some(exceeded) = refused {
                self.ask_for_rest(call, &exceeded);
                continue;
            }
            let shown = self.shown_tokens(dialect, body, covered.saturating_sub(GROW_BELOW));
            let is_covered = shown.saturating_add(CANCEL_BELOW) < covered;
            if self.asked.is_some() {
                return if is_covered { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            if shown.saturating_add(GROW_BELOW) < covered || (is_covered && shown < self.retry_at) {
                return Poll::Ready(Ok(()));
            }
            if shown < self.retry_at {
                return Poll::Ready(Err(UpstreamFailure::BudgetExhausted));
            }
            self.retry_at = shown.saturating_add(RETRY_TOKENS);
            self.ask(call, call.bill.plan().grown());
        }
    }

    /// Returns how many more bytes of the stream the hold covers now. A token that is shown has at least one byte.
    pub(super) fn allowance(&mut self, call: &ModelCall, dialect: ApiDialect, body: &[u8]) -> usize {
        let Some(covered) = call.bill.covered_tokens() else { return usize::MAX };
        let shown = self.shown_tokens(dialect, body, covered.saturating_sub(GROW_BELOW));
        usize::try_from(covered.saturating_sub(shown)).unwrap_or(usize::MAX)
    }

    /// Reduces the hold when the vendor has counted the prompt. Nothing waits for that.
    pub(super) fn take_prompt(&mut self, call: &mut ModelCall, usage: &protocol::Usage) {
        if self.saw_prompt || self.asked.is_some() || usage.input_tokens + usage.cache_read_tokens == 0 {
            return;
        }
        self.saw_prompt = true;
        if let Some(plan) = call.bill.plan().with_counted_prompt(usage) {
            self.ask(call, plan);
        }
    }

    /// Asks the ledger for the complete hold, and waits for the reply.
    pub(super) async fn complete(&mut self, call: &mut ModelCall) -> Result<(), UpstreamFailure> {
        if call.bill.covered_tokens().is_none() {
            return Ok(());
        }
        let plan = call.bill.plan().complete();
        match call.bill.change_hold(&call.identity, &plan).await {
            Ok(()) => {
                call.bill.set_plan(plan);
                Ok(())
            }
            Err(_) => Err(UpstreamFailure::BudgetExhausted),
        }
    }

    fn ask(&mut self, call: &ModelCall, plan: HoldPlan) {
        let reply = call.bill.change_hold(&call.identity, &plan);
        self.asked = Some((plan, reply));
    }

    /// Asks for the amount that the exceeded limit leaves, if that pays for a token.
    fn ask_for_rest(&mut self, call: &ModelCall, exceeded: &LimitExceeded) {
        let (LimitAmount::Picos(most) | LimitAmount::Tokens(most)) = exceeded.limit.max else { return };
        let left = most.saturating_sub(exceeded.spent.saturating_add(exceeded.held));
        if let Some(plan) = call.bill.plan().grown_by(left).filter(|_| left < exceeded.asked) {
            self.ask(call, plan);
        }
    }

    /// Takes the ledger's reply if it is there. Returns the limit that was exceeded.
    fn poll_reply(&mut self, call: &mut ModelCall, context: &mut Context<'_>) -> Option<LimitExceeded> {
        let (_, reply) = self.asked.as_mut()?;
        let Poll::Ready(result) = Pin::new(reply).poll(context) else { return None };
        let (plan, _) = self.asked.take()?;
        match result {
            Ok(()) => {
                call.bill.set_plan(plan);
                call.bill.notify_queue();
                self.retry_at = 0;
                None
            }
            Err(LedgerError::Refused(exceeded)) => Some(exceeded),
            Err(error) => {
                tracing::error!(error = base::error_chain(&error), call = %call.id, "cannot change a hold");
                None
            }
        }
    }
}
