//! The upstream and the model of sessions whose request names none, by agent.

use std::collections::BTreeMap;

use protocol::CreateSession;

/// The defaults of each agent, by name. They are used for new sessions only, and never for a replay.
#[derive(Debug, Clone, Default)]
pub struct AgentDefaults(BTreeMap<String, AgentDefault>);

/// The defaults of one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentDefault {
    /// The name of an upstream of the host; `None` for the host's own default.
    pub upstream: Option<String>,
    /// The model; `None` for the agent's own choice.
    pub model: Option<String>,
}

impl AgentDefaults {
    /// Returns the defaults of these agents.
    pub fn new(by_agent: impl IntoIterator<Item = (String, AgentDefault)>) -> Self {
        Self(by_agent.into_iter().collect())
    }

    /// Sets the upstream and the model of `request`, as far as it names none. A model belongs to its upstream, so the
    /// default model is not used with another upstream than its own.
    pub(crate) fn complete(&self, request: &mut CreateSession) {
        let Some(default) = self.0.get(&request.agent) else { return };
        if request.upstream.is_some() && request.upstream != default.upstream {
            return;
        }
        request.upstream = request.upstream.take().or_else(|| default.upstream.clone());
        request.model = request.model.take().or_else(|| default.model.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: [Option<&str>; 2], expected: [Option<&str>; 2]) {
        let text = |text: &str| Some(text.to_owned());
        let default = AgentDefault { upstream: text("local"), model: text("small") };
        let [upstream, model] = given.map(|given| given.map(str::to_owned));
        let mut request = CreateSession { agent: "mock".into(), upstream, model, ..CreateSession::default() };
        AgentDefaults::new([("mock".to_owned(), default)]).complete(&mut request);
        assert_eq!([request.upstream.as_deref(), request.model.as_deref()], expected);
    }

    #[test]
    fn request_comes_before_the_defaults() {
        check([None, None], [Some("local"), Some("small")]);
        check([Some("local"), None], [Some("local"), Some("small")]);
        check([None, Some("large")], [Some("local"), Some("large")]);
        check([Some("other"), None], [Some("other"), None]);
    }

    #[test]
    fn other_agents_have_no_defaults() {
        let mut request = CreateSession { agent: "codex".into(), ..CreateSession::default() };
        let default = AgentDefault { upstream: Some("local".into()), model: None };
        AgentDefaults::new([("mock".to_owned(), default)]).complete(&mut request);
        assert_eq!((request.upstream, request.model), (None, None));
    }
}
