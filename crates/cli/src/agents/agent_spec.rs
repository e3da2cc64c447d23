//! An agent as it is typed: `claude`, or `claude@2.1.325`.

use ::agents::{Agent, NpmPackage, UNSUPPORTED};
use protocol::ProblemCode;

use crate::failure::Failure;

/// An agent, and the version of it if one was named.
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
    /// Reads what was typed.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let (name, version) = match text.split_once('@') {
            Some((name, version)) => (name, Some(version)),
            None => (text, None),
        };
        if let Some(known) = UNSUPPORTED.iter().find(|known| known.id == name) {
            let what = format!("agent `{name}` cannot be run here: {}", known.reason);
            return Err(Failure::new(ProblemCode::UnsupportedAgent, what).help("viv agents ls"));
        }
        let agent = ::agents::by_name(name).ok_or_else(|| {
            Failure::new(ProblemCode::UnsupportedAgent, format!("there is no agent `{name}`")).help("viv agents ls")
        })?;
        if let Some(version) = version.filter(|version| !is_version(version)) {
            return Err(Failure::new(ProblemCode::InvalidRequest, format!("`{version}` is no version"))
                .help(format!("viv agents install {name}")));
        }
        Ok(Self { agent, version: version.map(str::to_owned) })
    }

    /// What must be installed for it; nothing for an agent that is part of this program.
    pub(crate) fn package(&self) -> Option<&'static NpmPackage> {
        self.agent.package()
    }
}

/// Whether it can be the version of a package, and the name of a folder.
pub(super) fn is_version(text: &str) -> bool {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || ".-+".contains(letter);
    text.starts_with(|letter: char| letter.is_ascii_alphanumeric()) && text.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_a_name_and_never_a_path() {
        for good in ["2.1.325", "latest", "1.0.0-rc.1", "1.0.0+build"] {
            assert!(is_version(good), "{good}");
        }
        for bad in ["", ".", "..", "../x", "a/b", "-g", ".hidden", "1 2", "git:x"] {
            assert!(!is_version(bad), "{bad}");
        }
    }

    #[test]
    fn what_is_no_agent_is_told_with_its_reason() {
        assert_eq!(AgentSpec::parse("claude@2.1.197").unwrap().to_string(), "claude@2.1.197");
        assert!(AgentSpec::parse("mock").unwrap().package().is_none());
        for (typed, reason) in [("nobody", "no agent `nobody`"), ("amp", "vendor's server"), ("pi@../x", "no version")]
        {
            assert!(AgentSpec::parse(typed).unwrap_err().to_string().contains(reason), "{typed}");
        }
    }
}
