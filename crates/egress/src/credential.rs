//! A credential of the host, and its placeholder inside the sandbox.

use secret::Secret;

/// Variables that programs depend on. They never hold a placeholder.
const RESERVED_VARIABLES: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TMPDIR", "LANG", "TERM", "IFS"];

/// A credential that the proxy injects into headers.
#[derive(Debug, Clone)]
pub struct EgressCredential {
    /// The secret. Only the proxy has it.
    pub secret: Secret,
    /// The variable inside that holds a placeholder of the same shape; `None` sets no variable.
    pub variable: Option<String>,
}

impl EgressCredential {
    /// Returns the credential `name` of a policy. Its variable is `name` in capitals, if that is a valid variable.
    pub fn from_name(name: &str, secret: Secret) -> Self {
        let variable = name.to_ascii_uppercase().replace('-', "_");
        Self { secret, variable: Some(variable).filter(|variable| Self::is_valid_variable(variable)) }
    }

    /// Returns whether a variable `name` may hold a placeholder.
    pub fn is_valid_variable(name: &str) -> bool {
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let starts_well = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        is_name && starts_well && !RESERVED_VARIABLES.contains(&name) && !name.starts_with("LD_")
    }

    /// Returns the variable and its placeholder value.
    pub(crate) fn placeholder(&self) -> Option<(String, String)> {
        Some((self.variable.clone()?, self.secret.placeholder()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_is_the_name_in_capitals_unless_reserved() {
        let variable = |name| EgressCredential::from_name(name, Secret::new("key")).variable;
        assert_eq!(variable("github-token").as_deref(), Some("GITHUB_TOKEN"));
        assert_eq!(variable("NPM_TOKEN").as_deref(), Some("NPM_TOKEN"));
        for name in ["path", "Home", "ld_preload", "7th"] {
            assert_eq!(variable(name), None, "{name}");
        }
    }
}
