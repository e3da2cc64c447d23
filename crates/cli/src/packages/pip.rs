//! pip: its package indexes, as `pip config` prints them or pip's help shows as default, and the host of its files.

use std::ffi::OsStr;
use std::path::Path;

use serde_json::Value;

use super::{HostTools, PackageTools};

/// The sections of pip's configuration that apply to installs, strongest first.
const SECTIONS: [&str; 3] = [":env:.", "install.", "global."];
/// A package that each index has: pip itself.
const KNOWN_PACKAGE: &str = "pip";

pub(super) fn find(host: &HostTools) -> PackageTools {
    let mut found = PackageTools::default();
    let Some(pip) = ["pip", "pip3"].iter().find_map(|name| host.program(name)) else { return found };
    let config = match HostTools::ask(&pip, &["config", "list"], &[]) {
        Ok(config) => config,
        Err(why) => {
            found.note(format!("pip: {why}"));
            return found;
        }
    };
    let index = setting(&config, "index-url").or_else(|| default_index(&pip));
    let Some((url, origin)) = index else {
        found.note("pip: neither its configuration nor its help names a package index");
        return found;
    };
    let mut plain = Vec::new();
    if let Some(registry) = found.registry(&url, &format!("pip: {origin}")) {
        plain.extend((!registry.tls).then(|| registry.host().to_owned()));
        found.variable("PIP_INDEX_URL", registry.url());
    }
    let (extra, origin) = setting(&config, "extra-index-url").unwrap_or_default();
    let mut urls = Vec::new();
    for url in extra.split_whitespace() {
        let Some(registry) = found.registry(url, &format!("pip: {origin}")) else { continue };
        plain.extend((!registry.tls).then(|| registry.host().to_owned()));
        urls.push(registry.url());
    }
    if !urls.is_empty() {
        found.variable("PIP_EXTRA_INDEX_URL", urls.join(" "));
    }
    // pip refuses an index without TLS unless its host is named; the host's pip names it in the same way.
    let trusted = setting(&config, "trusted-host").unwrap_or_default().0;
    plain.retain(|host| trusted.split_whitespace().any(|name| name.split(':').next() == Some(host)));
    if !plain.is_empty() {
        found.variable("PIP_TRUSTED_HOST", plain.join(" "));
    }
    match files_host(&pip) {
        Some(url) => {
            found.registry(&url, "pip: downloads");
        }
        None => found.note("pip: the index did not say where files are downloaded; only its own host is open"),
    }
    found
}

/// Returns the strongest value of a key in the lines of `pip config list`, and its place.
fn setting(config: &str, key: &str) -> Option<(String, String)> {
    SECTIONS.iter().find_map(|section| {
        let name = format!("{section}{key}");
        let value = config.lines().find_map(|line| line.strip_prefix(&name)?.strip_prefix('='))?;
        let place = match *section {
            ":env:." => format!("PIP_{}", key.to_uppercase().replace('-', "_")),
            _ => "pip.conf".to_owned(),
        };
        Some((value.trim_matches(['\'', '"']).replace("\\n", " "), place))
    })
}

/// Returns the default that pip's help prints.
fn default_index(pip: &Path) -> Option<(String, String)> {
    let wide = OsStr::new("4000");
    let help = HostTools::ask(pip, &["install", "--help"], &[("COLUMNS", wide)]).ok()?;
    let line = help.lines().find(|line| line.contains("--index-url <"))?;
    let (_, rest) = line.split_once("(default ")?;
    Some((rest.split_once(')')?.0.to_owned(), "built-in default".to_owned()))
}

/// Returns the URL of a file of the index, from an install that pip only plans.
fn files_host(pip: &Path) -> Option<String> {
    let plan = ["install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet", "--report", "-", KNOWN_PACKAGE];
    let report: Value = serde_json::from_str(&HostTools::ask(pip, &plan, &[]).ok()?).ok()?;
    report["install"][0]["download_info"]["url"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_section_is_used() {
        let config = "global.index-url='https://a.example.com/simple'\n:env:.index-url='https://b.example.com/simple'\n\
                      global.extra-index-url='https://c.example.com\\nhttps://d.example.com'\n";
        let value = |key| setting(config, key).unwrap_or_default();
        assert_eq!(value("index-url"), ("https://b.example.com/simple".to_owned(), "PIP_INDEX_URL".to_owned()));
        assert_eq!(value("extra-index-url").0, "https://c.example.com https://d.example.com");
        assert_eq!(value("trusted-host").0, "");
    }
}
