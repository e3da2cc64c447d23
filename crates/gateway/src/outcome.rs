//! What a call that is over means for its bill.
//!
//! One rule for a call that just ended and for one that is read from a record after a crash. Where the vendor
//! may have served more than it told us, the answer is never "nothing".

use protocol::Usage;

/// What a call that is over means for its bill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It used this much.
    Settled(Usage),
    /// It cost nothing, and why.
    Failed(String),
    /// It may have cost something, and nobody here knows how much.
    Lost,
}

/// How a call ended, as far as its bill is concerned.
#[derive(Debug, Clone)]
pub(crate) struct End<'a> {
    /// Status of the upstream's answer; none: there was no answer.
    pub(crate) answered: Option<u16>,
    /// What went wrong.
    pub(crate) failure: Option<&'a str>,
    /// Tokens, as far as they were told.
    pub(crate) usage: Usage,
    /// Whether the request may have reached the vendor.
    pub(crate) reached: bool,
    /// Whether nothing of it costs.
    pub(crate) free: bool,
}

impl End<'_> {
    /// What the end means for the bill.
    pub(crate) fn outcome(&self) -> Outcome {
        let told = self.usage != Usage::default();
        let refused = self.answered.is_some_and(|status| !(200..300).contains(&status));
        let failure = || Outcome::Failed(self.failure.unwrap_or("the upstream refused it").to_owned());
        match (self.answered, self.failure) {
            (Some(_), None) if told || self.free => Outcome::Settled(self.usage),
            (Some(_), _) if refused && told => Outcome::Settled(self.usage),
            (Some(_), _) if refused => failure(),
            (Some(_), Some(_)) if self.free => Outcome::Settled(self.usage),
            (None, _) if self.free || !self.reached => failure(),
            // An answer that says nothing of tokens, one that broke off, none where one was due.
            _ => Outcome::Lost,
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

    #[track_caller]
    fn check(answered: Option<u16>, failure: Option<&str>, usage: Usage, reached: bool, expected: [Outcome; 2]) {
        let end = |free| End { answered, failure, usage, reached, free }.outcome();
        assert_eq!([end(false), end(true)], expected);
    }

    #[test]
    fn a_whole_answer_is_charged_as_it_was_counted() {
        check(Some(200), None, SOME, true, [Outcome::Settled(SOME), Outcome::Settled(SOME)]);
        check(Some(200), None, NONE, true, [Outcome::Lost, Outcome::Settled(NONE)]);
    }

    #[test]
    fn a_refusal_costs_what_it_says_it_costs() {
        let failed = || Outcome::Failed("no".to_owned());
        check(Some(429), Some("no"), NONE, true, [failed(), failed()]);
        check(Some(529), Some("no"), SOME, true, [Outcome::Settled(SOME), Outcome::Settled(SOME)]);
    }

    #[test]
    fn what_broke_off_may_have_cost_more_than_it_told() {
        check(Some(200), Some("cut"), SOME, true, [Outcome::Lost, Outcome::Settled(SOME)]);
        check(None, Some("silent"), NONE, true, [Outcome::Lost, Outcome::Failed("silent".to_owned())]);
        let failed = || Outcome::Failed("unreachable".to_owned());
        check(None, Some("unreachable"), NONE, false, [failed(), failed()]);
    }
}
