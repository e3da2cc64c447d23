//! The outcome of a call: how its end is billed.
//!
//! The same rule holds for a call that just ended and for a call that is read from a journal after a crash. A call
//! that the upstream may have charged for is never billed as free.

use protocol::Usage;

/// How a call that ended is billed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    /// The call is charged for this usage.
    Settled(Usage),
    /// The call cost nothing, for this reason.
    Failed(String),
    /// The call may have cost something, and the amount is not known. It keeps its hold until it is reconciled.
    Unknown,
}

/// The facts about the end of a call that decide its outcome.
#[derive(Debug, Clone)]
pub(crate) struct CallFacts<'a> {
    /// The status of the response. `None` if the upstream sent none.
    pub(crate) response_status: Option<u16>,
    /// The error on the side of the upstream.
    pub(crate) failure: Option<&'a str>,
    /// The tokens that the upstream reported.
    pub(crate) usage: Usage,
    /// Whether the request may have reached the upstream.
    pub(crate) reached_upstream: bool,
    /// Whether the gateway cancelled the call, so that `usage` is the most that it can have used.
    pub(crate) estimated: bool,
    /// Whether the call is free, regardless of its usage.
    pub(crate) free: bool,
}

impl CallOutcome {
    /// Returns the outcome of a call that ended with `facts`.
    pub(crate) fn decide(facts: &CallFacts<'_>) -> Self {
        let reported = facts.usage != Usage::default();
        let rejected = facts.response_status.is_some_and(|status| !(200..300).contains(&status));
        let failed = || Self::Failed(facts.failure.unwrap_or("the upstream rejected the call").to_owned());
        match (facts.response_status, facts.failure) {
            _ if facts.estimated && facts.reached_upstream && !facts.free => Self::Settled(facts.usage),
            (Some(_), None) if reported || facts.free => Self::Settled(facts.usage),
            (Some(_), _) if rejected && reported => Self::Settled(facts.usage),
            (Some(_), _) if rejected => failed(),
            (Some(_), Some(_)) if facts.free => Self::Settled(facts.usage),
            (None, _) if facts.free || !facts.reached_upstream => failed(),
            // A response without usage, a response that was cut off, or no response to a request that was sent.
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Usage = Usage {
        input_tokens: 1,
        output_tokens: 2,
        cache_read_tokens: 0,
        cache_write_tokens: 0,
        cache_write_1h_tokens: 0,
    };
    const NONE: Usage = Usage {
        input_tokens: 0,
        output_tokens: 0,
        cache_read_tokens: 0,
        cache_write_tokens: 0,
        cache_write_1h_tokens: 0,
    };

    /// Compares the outcomes of a call with a price and of a free call.
    #[track_caller]
    fn check(
        response_status: Option<u16>,
        failure: Option<&str>,
        usage: Usage,
        reached_upstream: bool,
        expected: [CallOutcome; 2],
    ) {
        let outcome = |free| {
            CallOutcome::decide(&CallFacts {
                response_status,
                failure,
                usage,
                reached_upstream,
                estimated: false,
                free,
            })
        };
        assert_eq!([outcome(false), outcome(true)], expected);
    }

    #[test]
    fn complete_response_is_charged_for_its_reported_usage() {
        check(Some(200), None, SOME, true, [CallOutcome::Settled(SOME), CallOutcome::Settled(SOME)]);
        check(Some(200), None, NONE, true, [CallOutcome::Unknown, CallOutcome::Settled(NONE)]);
    }

    #[test]
    fn error_response_is_charged_only_for_reported_usage() {
        let failed = || CallOutcome::Failed("no".to_owned());
        check(Some(429), Some("no"), NONE, true, [failed(), failed()]);
        check(Some(529), Some("no"), SOME, true, [CallOutcome::Settled(SOME), CallOutcome::Settled(SOME)]);
    }

    #[test]
    fn cancelled_call_is_charged_for_its_estimate() {
        for response_status in [Some(200), None] {
            let failure = Some("interrupted");
            let facts = |estimated| CallFacts {
                response_status,
                failure,
                usage: SOME,
                reached_upstream: true,
                estimated,
                free: false,
            };
            assert_eq!(CallOutcome::decide(&facts(true)), CallOutcome::Settled(SOME));
            assert_eq!(CallOutcome::decide(&facts(false)), CallOutcome::Unknown);
        }
    }

    #[test]
    fn interrupted_call_has_an_unknown_cost_if_it_reached_the_upstream() {
        check(Some(200), Some("cut"), SOME, true, [CallOutcome::Unknown, CallOutcome::Settled(SOME)]);
        check(None, Some("silent"), NONE, true, [CallOutcome::Unknown, CallOutcome::Failed("silent".to_owned())]);
        let failed = || CallOutcome::Failed("unreachable".to_owned());
        check(None, Some("unreachable"), NONE, false, [failed(), failed()]);
    }
}
