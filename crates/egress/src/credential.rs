//! A credential of the host, and what stands for it inside.

use secret::Secret;

/// Variables that programs inside live by: no placeholder ever takes their place.
const TAKEN: [&str; 10] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TMPDIR", "LANG", "TERM", "IFS"];

/// A credential that the proxy sets in headers.
#[derive(Debug, Clone)]
pub struct EgressCredential {
    /// What only the proxy has.
    pub secret: Secret,
    /// The variable inside that holds a placeholder of the same shape; none where no program looks for one.
    pub variable: Option<String>,
}

impl EgressCredential {
    /// The one that a policy calls `name`: its variable has that name in capitals.
    pub fn from_name(name: &str, secret: Secret) -> Self {
        let variable = name.to_ascii_uppercase().replace('-', "_");
        Self { secret, variable: Some(variable).filter(|variable| Self::is_valid_variable(variable)) }
    }

    /// Whether a placeholder can be in a variable of that name.
    pub fn is_valid_variable(name: &str) -> bool {
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let begins = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        is_name && begins && !TAKEN.contains(&name) && !name.starts_with("LD_")
    }

    /// The variable and what is in it.
    pub(crate) fn placeholder(&self) -> Option<(String, String)> {
        Some((self.variable.clone()?, self.secret.placeholder()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_has_the_name_in_capitals_unless_programs_live_by_it() {
        let variable = |name| EgressCredential::from_name(name, Secret::new("key")).variable;
        assert_eq!(variable("github-token").as_deref(), Some("GITHUB_TOKEN"));
        assert_eq!(variable("NPM_TOKEN").as_deref(), Some("NPM_TOKEN"));
        for name in ["path", "Home", "ld_preload", "7th"] {
            assert_eq!(variable(name), None, "{name}");
        }
    }
}
