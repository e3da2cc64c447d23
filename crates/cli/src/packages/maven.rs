//! maven: the mirrors and repositories of its settings, else the repository of the model that is part of maven.
//!
//! Java has trusted roots of its own, so that maven inside a sandbox refuses the proxy's certificate. A note says so.

use std::path::{Path, PathBuf};

use super::{HostTools, PackageTools};

/// The model from which every project inherits, in a jar of maven.
const SUPER_MODEL: &str = "org/apache/maven/model/pom-4.0.0.xml";
/// Start of the name of that jar.
const MODEL_JAR: &str = "maven-model-builder-";

pub(super) fn find(host: &HostTools) -> PackageTools {
    let mut found = PackageTools::default();
    let Some(maven) = host.program("mvn") else { return found };
    let installed = maven.canonicalize().ok().and_then(|path| Some(path.parent()?.parent()?.to_owned()));
    let user = host.home.as_ref().map(|home| home.join(".m2/settings.xml"));
    let machine = installed.as_ref().map(|maven| maven.join("conf/settings.xml"));
    let mut replaced = false;
    for path in [user, machine].into_iter().flatten() {
        let Some(text) = host.read(&path) else { continue };
        let text = without_blocked_mirrors(&without_comments(&text));
        replaced |= elements(&text, "mirrorOf").any(|mirrored| matches!(mirrored, "*" | "central" | "external:*"));
        for url in elements(&text, "url") {
            found.registry(url, &format!("maven: {}", host.shown(&path)));
        }
    }
    if !replaced {
        match installed.and_then(|maven| built_in(host, &maven)) {
            Some(url) => {
                found.registry(&url, "maven: built-in default");
            }
            None => found.note("maven: its built-in repository could not be read from the installed jar"),
        }
    }
    if found.registries.iter().any(|registry| registry.tls) {
        found.note("maven: Java inside does not trust the proxy's certificate, unless it gets a trust store with it");
    }
    found
}

/// Returns the URL of the repository in the model that is part of maven.
fn built_in(host: &HostTools, maven: &Path) -> Option<String> {
    let jars = std::fs::read_dir(maven.join("lib")).ok()?.flatten().map(|entry| entry.path());
    let jar: PathBuf = jars
        .into_iter()
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(MODEL_JAR)))?;
    let unzip = host.program("unzip")?;
    let arguments = ["-p".as_ref(), jar.as_os_str(), SUPER_MODEL.as_ref()];
    let model = HostTools::ask(&unzip, &arguments, &[]).ok()?;
    let url = elements(&model, "url").next()?.to_owned();
    Some(url)
}

fn without_comments(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("<!--") {
        kept += before;
        rest = comment.split_once("-->").map_or("", |(_, after)| after);
    }
    kept + rest
}

/// Returns the settings without mirrors that only block: their addresses are placeholders.
fn without_blocked_mirrors(text: &str) -> String {
    let mut kept = String::new();
    for part in text.split_inclusive("</mirror>") {
        let (before, mirror) = part.rsplit_once("<mirror>").unwrap_or((part, ""));
        kept += before;
        if elements(mirror, "blocked").next() != Some("true") {
            kept += mirror;
        }
    }
    kept
}

/// Returns the text of each element `name`.
fn elements<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let parts: Vec<&str> =
        text.split(&open).skip(1).filter_map(|part| Some(part.split_once(&close)?.0.trim())).collect();
    parts.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_of_the_settings_name_no_repository() {
        let text = without_comments(
            "<mirror><!-- <url>http://a.example.com</url> --><url> https://b.example.com/m </url></mirror>",
        );
        assert_eq!(elements(&text, "url").collect::<Vec<_>>(), ["https://b.example.com/m"]);
        let blocked =
            format!("<mirrors>{text}<mirror><url>http://0.0.0.0/</url><blocked>true</blocked></mirror></mirrors>");
        let text = without_blocked_mirrors(&blocked);
        assert_eq!(elements(&text, "url").collect::<Vec<_>>(), ["https://b.example.com/m"]);
    }
}
