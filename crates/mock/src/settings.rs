//! What the mock agent is started with.

use std::path::PathBuf;
use std::time::Duration;

use agents::PermissionMode;

/// The model it asks for when nobody chose one.
const DEFAULT_MODEL: &str = "scripted";

/// What the mock agent is started with.
#[derive(Debug, Clone)]
pub struct MockSettings {
    /// Where models are, without `/v1`.
    pub gateway_url: String,
    /// Opens the gateway.
    pub token: String,
    /// The model to ask for.
    pub model: String,
    /// How much it may do before it asks.
    pub mode: PermissionMode,
    /// Its own session id, when it goes on with one.
    pub resume: Option<String>,
    /// Time between two lines, so that a person can follow.
    pub delay: Duration,
    /// The proxy the sandbox offers.
    pub proxy: Option<String>,
    /// Where it works.
    pub workspace: PathBuf,
}

/// Why the mock agent cannot be started like this.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// An argument it does not have.
    #[error("the mock agent has no argument `{0}`")]
    UnknownArgument(String),
    /// An argument without its value.
    #[error("`{0}` needs a value")]
    MissingValue(String),
    /// A value that makes no sense.
    #[error("`{value}` is no value for `{argument}`")]
    BadValue {
        /// The argument.
        argument: String,
        /// What was given.
        value: String,
    },
    /// A variable that must be set.
    #[error("the variable `{0}` is not set")]
    MissingVariable(&'static str),
}

impl MockSettings {
    /// Reads what a launch plan says: `arguments` after `__agent mock`, variables through `variable`.
    pub fn parse(
        arguments: impl IntoIterator<Item = String>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, SettingsError> {
        let required = |name: &'static str| variable(name).ok_or(SettingsError::MissingVariable(name));
        let mut settings = Self {
            gateway_url: required("ANTHROPIC_BASE_URL")?,
            token: required("ANTHROPIC_AUTH_TOKEN")?,
            model: variable("ANTHROPIC_MODEL").unwrap_or_else(|| DEFAULT_MODEL.to_owned()),
            mode: PermissionMode::Default,
            resume: None,
            delay: Duration::ZERO,
            proxy: variable("HTTP_PROXY"),
            workspace: PathBuf::from("."),
        };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let Some(value) = arguments.next() else { return Err(SettingsError::MissingValue(argument)) };
            settings.set(argument, value)?;
        }
        Ok(settings)
    }

    fn set(&mut self, argument: String, value: String) -> Result<(), SettingsError> {
        match argument.as_str() {
            "--resume" => self.resume = Some(value),
            "--mode" => match PermissionMode::parse(&value) {
                Some(mode) => self.mode = mode,
                None => return Err(SettingsError::BadValue { argument, value }),
            },
            "--delay-ms" => match value.parse() {
                Ok(millis) => self.delay = Duration::from_millis(millis),
                Err(_) => return Err(SettingsError::BadValue { argument, value }),
            },
            _ => return Err(SettingsError::UnknownArgument(argument)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use agents::{Agent, LaunchContext, MockAgent};

    use super::*;

    fn check(context: &LaunchContext) -> MockSettings {
        let plan = MockAgent.plan(context).unwrap();
        MockSettings::parse(plan.argv[3..].iter().cloned(), |name| plan.env.get(name).cloned()).unwrap()
    }

    #[test]
    fn what_the_launch_plan_says_is_what_the_process_reads() {
        let context = LaunchContext {
            gateway_url: "http://127.0.0.1:18080".to_owned(),
            token: "secret".to_owned(),
            model: Some("claude-x".to_owned()),
            permission_mode: Some("acceptEdits".to_owned()),
            native_session_id: Some("mock-7".to_owned()),
            ..LaunchContext::default()
        };
        let settings = check(&context);
        assert_eq!(settings.gateway_url, context.gateway_url);
        assert_eq!(settings.token, "secret");
        assert_eq!(settings.model, "claude-x");
        assert_eq!(settings.mode, PermissionMode::AcceptEdits);
        assert_eq!(settings.resume.as_deref(), Some("mock-7"));
        assert_eq!(check(&LaunchContext::default()).mode, PermissionMode::Default);
    }

    #[test]
    fn what_it_does_not_know_is_an_error() {
        let parse = |words: &[&str]| {
            MockSettings::parse(words.iter().map(|word| (*word).to_owned()), |_| Some(String::new())).unwrap_err()
        };
        assert_eq!(parse(&["--speed", "1"]), SettingsError::UnknownArgument("--speed".to_owned()));
        assert_eq!(parse(&["--mode"]), SettingsError::MissingValue("--mode".to_owned()));
        assert!(matches!(parse(&["--mode", "yolo"]), SettingsError::BadValue { .. }));
        assert!(matches!(parse(&["--delay-ms", "-1"]), SettingsError::BadValue { .. }));
        let missing = MockSettings::parse([], |_| None).unwrap_err();
        assert_eq!(missing, SettingsError::MissingVariable("ANTHROPIC_BASE_URL"));
    }
}
