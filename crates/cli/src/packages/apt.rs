//! apt: the servers of its source lists.

use std::path::{Path, PathBuf};

use super::{HostTools, PackageTools};

const DIRECTORY: &str = "/etc/apt";

pub(super) fn find(host: &HostTools) -> PackageTools {
    let mut found = PackageTools::default();
    for path in files(Path::new(DIRECTORY)) {
        let Some(text) = host.read(&path) else { continue };
        for url in urls(&text) {
            found.registry(url, &format!("apt: {}", path.display()));
        }
    }
    found
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory.join("sources.list.d")).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "list" || end == "sources"));
    files.sort();
    files.insert(0, directory.join("sources.list"));
    files
}

/// Returns the URLs of a list in either format: lines with `deb`, or fields with `URIs:`.
fn urls(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines.flat_map(|line| {
        let rest = line.strip_prefix("URIs:").or_else(|| line.strip_prefix("deb")).unwrap_or_default();
        rest.split_whitespace().filter(|word| word.contains("://"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_of_source_lists_are_read() {
        let text = "# deb http://no.example.com x main\ndeb [signed-by=/k] http://a.example.com/debian x main\n\
                    Types: deb\nURIs: https://b.example.com/d http://c.example.com/d\n";
        let found: Vec<&str> = urls(text).collect();
        assert_eq!(found, ["http://a.example.com/debian", "https://b.example.com/d", "http://c.example.com/d"]);
    }
}
