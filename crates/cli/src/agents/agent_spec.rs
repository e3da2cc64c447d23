//! An agent as written on the command line: `claude` or `claude@2.1.325`.

use ::agents::{Agent, NpmPackage, UNSUPPORTED};
use protocol::ProblemCode;
use session::SessionError;

use crate::failure::Failure;

/// An agent and, if given, its version.
#[derive(Clone)]
pub(crate) struct AgentSpec {
    pub(crate) agent: &'static dyn Agent,
    pub(crate) version: Option<String>,
}

impl std::fmt::Debug for AgentSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_string())
    }
}

impl std::fmt::Display for AgentSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{}@{version}", self.agent.id()),
            None => f.write_str(self.agent.id()),
        }
    }
}

impl AgentSpec {
    /// Parses NAME or NAME@VERSION; fails for unknown agents and invalid versions.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let (name, version) = match text.split_once('@') {
            Some((name, version)) => (name, Some(version)),
            None => (text, None),
        };
        if let Some(known) = UNSUPPORTED.iter().find(|known| known.id == name) {
            let what = format!("agent `{name}` is not supported: {}", known.reason);
            return Err(Failure::new(ProblemCode::UnsupportedAgent, what).help("viv agents ls"));
        }
        // The same error as that of the session API.
        let agent = ::agents::by_name(name).ok_or_else(|| SessionError::UnknownAgent(name.to_owned()))?;
        if let Some(version) = version.filter(|version| !is_version(version)) {
            return Err(Failure::new(
                ProblemCode::InvalidRequest,
                format!("invalid version `{version}` of agent `{name}`"),
            )
            .help(format!("viv agents install {name}")));
        }
        Ok(Self { agent, version: version.map(str::to_owned) })
    }

    /// Returns the npm package of the agent; `None` for a built-in agent.
    pub(crate) fn package(&self) -> Option<&'static NpmPackage> {
        self.agent.package()
    }
}

/// Returns whether `text` is usable as a package version and as a folder name.
pub(super) fn is_version(text: &str) -> bool {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || ".-+".contains(letter);
    text.starts_with(|letter: char| letter.is_ascii_alphanumeric()) && text.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_cannot_be_a_path() {
        for good in ["2.1.325", "latest", "1.0.0-rc.1", "1.0.0+build"] {
            assert!(is_version(good), "{good}");
        }
        for bad in ["", ".", "..", "../x", "a/b", "-g", ".hidden", "1 2", "git:x"] {
            assert!(!is_version(bad), "{bad}");
        }
    }

    #[test]
    fn errors_name_the_agent_and_the_reason() {
        assert_eq!(AgentSpec::parse("claude@2.1.197").unwrap().to_string(), "claude@2.1.197");
        assert!(AgentSpec::parse("mock").unwrap().package().is_none());
        for (typed, reason) in [
            ("nobody", "unknown agent `nobody`"),
            ("cluade", "unknown agent `cluade`, did you mean `claude`?"),
            ("amp", "vendor's server"),
            ("pi@../x", "invalid version `../x`"),
        ] {
            assert!(AgentSpec::parse(typed).unwrap_err().to_string().contains(reason), "{typed}");
        }
    }
}
