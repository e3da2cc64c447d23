//! Settings of the mock agent.

use std::path::PathBuf;
use std::time::Duration;

use agents::PermissionMode;

/// The default model.
const DEFAULT_MODEL: &str = "scripted";

/// Settings of the mock agent.
#[derive(Debug, Clone)]
pub struct MockSettings {
    /// URL of the gateway, without `/v1`.
    pub gateway_url: String,
    /// The token for the gateway.
    pub token: String,
    /// The model to call.
    pub model: String,
    /// The permission mode.
    pub mode: PermissionMode,
    /// The session id to resume.
    pub resume: Option<String>,
    /// Delay before each line, so that a person can follow.
    pub delay: Duration,
    /// The proxy of the sandbox.
    pub proxy: Option<String>,
    /// The workspace.
    pub workspace: PathBuf,
}

/// The reason why the settings are invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The argument is unknown.
    #[error("unknown argument `{0}`")]
    UnknownArgument(String),
    /// The value of an argument is missing.
    #[error("`{0}` needs a value")]
    MissingValue(String),
    /// The value of an argument is invalid.
    #[error("invalid value `{value}` for `{argument}`")]
    BadValue {
        /// The argument.
        argument: String,
        /// The value.
        value: String,
    },
    /// A required variable is not set.
    #[error("environment variable `{0}` is not set")]
    MissingVariable(&'static str),
}

impl MockSettings {
    /// Parses the `arguments` after `__agent mock`, and reads variables with `variable`.
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
    fn launch_plan_is_parsed_by_the_process() {
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
    fn unknown_and_invalid_settings_are_errors() {
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
