//! cargo: the registry that replaces its default one, named registries, and the host of their crates.
//!
//! cargo prints no default. It is asked to resolve a package that does not exist, with an empty home, and then has one
//! index: that of the default registry or of its replacement, with the place of the crates.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::host_tools::PrivateDirectory;
use super::registry::Registry;
use super::{HostTools, PackageTools};
use crate::config::host_variable;

/// Configuration file inside: a parent of each workspace.
const CONFIG_PATH: &str = "/.cargo/config.toml";
/// A manifest of its own workspace, so that no other manifest is looked for. No registry accepts the name.
const MANIFEST: &str = "[package]\nname = \"viv\"\nversion = \"0.0.0\"\n[workspace]\n[lib]\npath = \"lib.rs\"\n\
                        [dependencies]\nviv---asks-for-the-index = \"*\"\n";
/// Prefix of the URL of an index that is read over HTTP.
const SPARSE: &str = "sparse+";

pub(super) fn find(host: &HostTools) -> PackageTools {
    let mut found = PackageTools::default();
    let Some(cargo) = host.program("cargo") else { return found };
    let (path, config) = configuration(host);
    let origin = path.as_ref().map_or_else(String::new, |path| host.shown(path));
    let inside = settings_inside(&config, &origin, &mut found);
    match index_of_default(&cargo, path.as_deref()) {
        Some((index_host, downloads)) => {
            let replaced = config.get("source").and_then(|sources| sources.get("crates-io")).is_some();
            if !replaced {
                found.registry(&format!("https://{index_host}/"), "cargo: built-in default");
            }
            if let Some(url) = downloads {
                found.registry(&url, "cargo: downloads");
            }
        }
        None => found.note("cargo: its registry gave no index, so the place of the crates is unknown"),
    }
    if !inside.is_empty() {
        found.file(CONFIG_PATH, inside.to_string());
    }
    found
}

/// Returns the user's configuration file and its content.
fn configuration(host: &HostTools) -> (Option<PathBuf>, Table) {
    let home = host_variable("CARGO_HOME").map(PathBuf::from).or_else(|| Some(host.home.as_ref()?.join(".cargo")));
    let Some(home) = home else { return (None, Table::new()) };
    let files = ["config.toml", "config"].map(|name| home.join(name));
    let read = |path: &PathBuf| Some((path.clone(), host.read(path)?.parse::<Table>().ok()?));
    match files.iter().find_map(read) {
        Some((path, config)) => (Some(path), config),
        None => (None, Table::new()),
    }
}

/// Adds the configured registries, and returns their configuration without anything else.
fn settings_inside(config: &Table, origin: &str, found: &mut PackageTools) -> Table {
    let mut inside = Table::new();
    for (section, url_key) in [("source", "registry"), ("registries", "index")] {
        let Some(entries) = config.get(section).and_then(Value::as_table) else { continue };
        let mut kept = Table::new();
        for (name, entry) in entries {
            let mut settings = Table::new();
            if let Some(replacement) = entry.get("replace-with") {
                settings.insert("replace-with".to_owned(), replacement.clone());
            }
            if let Some(url) = entry.get(url_key).and_then(Value::as_str)
                && let Some(registry) = add_index(url, origin, found)
            {
                settings.insert(url_key.to_owned(), Value::String(format!("{SPARSE}{}", registry.url())));
            }
            if entry.get("token").is_some() {
                found.note(format!(
                    "cargo: `{name}` of {origin} needs a token, which cargo does not take from the proxy"
                ));
            }
            if !settings.is_empty() {
                kept.insert(name.clone(), Value::Table(settings));
            }
        }
        if !kept.is_empty() {
            inside.insert(section.to_owned(), Value::Table(kept));
        }
    }
    inside
}

fn add_index(url: &str, origin: &str, found: &mut PackageTools) -> Option<Registry> {
    let Some(url) = url.strip_prefix(SPARSE) else {
        found.note(format!("cargo: an index of {origin} is a git repository, which needs more than GET and HEAD"));
        return None;
    };
    found.registry(url, &format!("cargo: {origin}"))
}

/// Returns the host of the index that cargo uses by default, and the URL of its crates.
fn index_of_default(cargo: &Path, config: Option<&Path>) -> Option<(String, Option<String>)> {
    let place = PrivateDirectory::new()?;
    let manifest = place.path().join("Cargo.toml");
    std::fs::write(&manifest, MANIFEST).ok()?;
    std::fs::write(place.path().join("lib.rs"), "").ok()?;
    let home = place.path().join("home");
    let mut arguments = vec![OsStr::new("generate-lockfile"), OsStr::new("--manifest-path"), manifest.as_os_str()];
    if let Some(config) = config {
        arguments.extend([OsStr::new("--config"), config.as_os_str()]);
    }
    let variables = [("CARGO_HOME", home.as_os_str()), ("CARGO_NET_RETRY", OsStr::new("0"))];
    // This always fails, because the package does not exist.
    let _ = HostTools::ask(cargo, &arguments, &variables);
    let index = std::fs::read_dir(home.join("registry/index")).ok()?.flatten().next()?;
    let name = index.file_name().into_string().ok()?;
    let (index_host, _) = name.rsplit_once('-')?;
    let text = std::fs::read_to_string(index.path().join("config.json")).ok()?;
    let config: serde_json::Value = serde_json::from_str(&text).ok()?;
    Some((index_host.to_owned(), config["dl"].as_str().map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replacement_reaches_the_sandbox_without_anything_else() {
        let config = "[source.crates-io]\nreplace-with = \"mirror\"\n[source.mirror]\n\
                      registry = \"sparse+https://u:p@mirror.example.com/crates/\"\n[net]\nretry = 3\n\
                      [registries.own]\nindex = \"https://git.example.com/index\"\ntoken = \"canary\"\n";
        let mut found = PackageTools::default();
        let inside = settings_inside(&config.parse().unwrap(), "~/.cargo/config.toml", &mut found);
        let text = inside.to_string();
        assert!(text.contains("registry = \"sparse+https://mirror.example.com/crates/\""), "{text}");
        assert!(!text.contains("canary") && !text.contains("u:p") && !text.contains("retry"), "{text}");
        assert_eq!((found.registries.len(), found.notes.len()), (1, 2), "{:?}", found.notes);
    }
}
