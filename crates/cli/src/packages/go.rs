//! go: the module proxies of `GOPROXY` and the checksum database of `GOSUMDB`, as `go env` prints them.

use std::ffi::OsStr;

use super::{HostTools, PackageTools};

pub(super) fn find(host: &HostTools) -> PackageTools {
    let mut found = PackageTools::default();
    let Some(go) = host.program("go") else { return found };
    // Without this, go may download another version of itself.
    let printed = HostTools::ask(&go, &["env", "GOPROXY", "GOSUMDB"], &[("GOTOOLCHAIN", OsStr::new("local"))]);
    match printed {
        Ok(text) => {
            let mut lines = text.lines();
            let (proxies, sums) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
            add(&mut found, proxies, sums);
        }
        Err(why) => found.note(format!("go: {why}")),
    }
    found
}

fn add(found: &mut PackageTools, proxies: &str, sums: &str) {
    let mut inside = proxies.to_owned();
    for proxy in proxies.split([',', '|']).map(str::trim).filter(|proxy| !proxy.is_empty()) {
        if proxy == "direct" {
            found.note("go: `direct` of GOPROXY (version control hosts of modules) is not opened");
        } else if proxy != "off"
            && let Some(registry) = found.registry(proxy, "go: GOPROXY")
        {
            inside = inside.replace(proxy, &registry.url());
        }
    }
    found.variable("GOPROXY", inside);
    // `off`, a name, or a name with a key and then a URL.
    let mut words = sums.split_whitespace();
    let name = words.next().unwrap_or("off");
    let database = name.split('+').next().unwrap_or(name);
    let url = words.next().map_or_else(|| format!("https://{database}/"), str::to_owned);
    if name != "off"
        && let Some(registry) = found.registry(&url, "go: GOSUMDB")
    {
        let place = if sums.contains(' ') { format!("{name} {}", registry.url()) } else { name.to_owned() };
        found.variable("GOSUMDB", place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_and_the_checksum_database_are_added_without_credentials() {
        let mut found = PackageTools::default();
        add(&mut found, "https://u:p@go.example.com/mod,direct", "sum.example.com");
        let hosts: Vec<String> = found.accesses().into_iter().map(|access| access.endpoint).collect();
        assert_eq!(hosts, ["go.example.com:443", "sum.example.com:443"]);
        assert_eq!(found.settings.environment[0].1, "https://go.example.com/mod,direct");
        assert_eq!(found.notes.len(), 1);
    }
}
