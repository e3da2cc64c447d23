//! The environment of commands: the sandbox's defaults, and the host's variables that a policy passes.

use std::collections::BTreeMap;

use base::HOME;

/// The only default that a variable of the host may replace.
const LANGUAGE: &str = "LANG";

/// Returns the default environment of a command.
pub fn default_environment() -> BTreeMap<String, String> {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    [("PATH", path), ("HOME", HOME), (LANGUAGE, "C.UTF-8"), ("USER", "agent")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// Adds the variables of `env.pass` that the host has. Variables that are set already stay, because they point to paths
/// inside, to the gateway or to the proxy.
pub fn pass_variables(env: &mut BTreeMap<String, String>, names: &[String], host: impl Fn(&str) -> Option<String>) {
    for name in names.iter().filter(|name| *name == LANGUAGE || !env.contains_key(*name)).collect::<Vec<_>>() {
        if let Some(value) = host(name) {
            env.insert(name.clone(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{default_environment, pass_variables};

    #[test]
    fn passed_variables_do_not_replace_the_sandboxs_own() {
        let mut env = default_environment();
        env.insert("HTTP_PROXY".to_owned(), "http://127.0.0.1:18081".to_owned());
        let names = ["LANG", "TZ", "TERM", "HOME", "PATH", "HTTP_PROXY"].map(str::to_owned);
        pass_variables(&mut env, &names, |name| (name != "TERM").then(|| format!("host's {name}")));
        assert_eq!((env["LANG"].as_str(), env["TZ"].as_str()), ("host's LANG", "host's TZ"));
        assert!(!env.contains_key("TERM"), "the host does not set TERM");
        assert_eq!(env["HTTP_PROXY"], "http://127.0.0.1:18081");
        assert!(["HOME", "PATH"].iter().all(|name| !env[*name].starts_with("host's")), "{env:?}");
    }
}
