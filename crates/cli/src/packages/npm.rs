//! npm: its registry and those of scopes, as `npm config` prints them, and the host of its downloads.

use std::path::Path;

use serde_json::{Map, Value};

use super::registry::{Registry, RegistryCredential};
use super::{HostTools, PackageTools};
use crate::config::host_variable;

/// Configuration file inside. The project's own file still takes precedence, as on the host.
const CONFIG_PATH: &str = "/viv/npmrc";
/// A package that each registry has: npm itself.
const KNOWN_PACKAGE: &str = "npm";

pub(super) fn find(host: &HostTools) -> PackageTools {
    let mut found = PackageTools::default();
    let Some(npm) = host.program("npm") else { return found };
    let printed = HostTools::ask(&npm, &["config", "list", "--json"], &[]);
    let config: Map<String, Value> = match printed.map(|text| serde_json::from_str(&text)) {
        Ok(Ok(config)) => config,
        Ok(Err(_)) => return noted(found, "npm: `npm config list` printed no JSON".to_owned()),
        Err(why) => return noted(found, format!("npm: {why}")),
    };
    let files = ["userconfig", "globalconfig"].map(|key| config.get(key).and_then(Value::as_str).map(Path::new));
    let texts = files.map(|path| path.and_then(|path| Some((path, host.read(path)?))));
    let mut inside = String::new();
    for (key, value) in &config {
        let Some(url) = value.as_str().filter(|_| key == "registry" || key.ends_with(":registry")) else { continue };
        let origin = format!("npm: {}", origin(host, key, texts.iter().flatten()));
        let Some(registry) = found.registry(url, &origin) else { continue };
        inside += &format!("{key}={}\n", registry.url());
        let token = texts.iter().flatten().find_map(|(_, text)| credential(&registry, text));
        if let Some(last) = found.registries.last_mut() {
            last.credential = last.credential.take().or(token);
        }
    }
    match HostTools::ask(&npm, &["view", KNOWN_PACKAGE, "dist.tarball", "--fetch-retries=0"], &[]) {
        Ok(url) if !url.trim().is_empty() => {
            found.registry(url.trim(), "npm: downloads");
        }
        _ => found.note("npm: the registry did not say where packages are downloaded; only its own host is open"),
    }
    if !inside.is_empty() {
        found.variable("NPM_CONFIG_GLOBALCONFIG", CONFIG_PATH);
        found.file(CONFIG_PATH, inside);
    }
    found
}

fn noted(mut found: PackageTools, note: String) -> PackageTools {
    found.note(note);
    found
}

/// Returns the place that sets `key`.
fn origin<'a>(host: &HostTools, key: &str, texts: impl Iterator<Item = &'a (&'a Path, String)>) -> String {
    let variables = [format!("npm_config_{key}"), format!("NPM_CONFIG_{}", key.to_uppercase())];
    if let Some(name) = variables.into_iter().find(|name| host_variable(name).is_some()) {
        return name;
    }
    let sets = |text: &str| text.lines().any(|line| line.split_once('=').is_some_and(|(name, _)| name.trim() == key));
    let mut texts = texts;
    texts.find(|(_, text)| sets(text)).map_or_else(|| "built-in default".to_owned(), |(path, _)| host.shown(path))
}

/// Returns the token that `.npmrc` has for a registry: `//host/path/:_authToken=…`.
fn credential(registry: &Registry, text: &str) -> Option<RegistryCredential> {
    let location = registry.location();
    text.lines().find_map(|line| {
        let (name, value) = line.trim().split_once('=')?;
        let (place, kind) = name.trim().rsplit_once(':')?;
        let value = expanded(value.trim().trim_matches('"'))?;
        let is_same = location.starts_with(place) || format!("{location}/").starts_with(place);
        match (is_same && place.starts_with("//"), kind) {
            (true, "_authToken") => Some(RegistryCredential::bearer(&value)),
            (true, "_auth") => Some(RegistryCredential::basic(&value)),
            _ => None,
        }
    })
}

/// Replaces `${NAME}` by the variable, as npm does; `None` if it is not set.
fn expanded(value: &str) -> Option<String> {
    match value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) {
        Some(name) => host_variable(name),
        None => Some(value.to_owned()),
    }
}
