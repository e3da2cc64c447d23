//! Settings of package managers without their credentials.
//!
//! Lines that may hold a credential are left out, and names and passwords in URLs are removed. Not here: the files in
//! which this is done (`table`).

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileFormat {
    /// Lines of `key = value`: npmrc, properties and TOML files.
    Settings,
    /// The settings of Maven.
    MavenSettings,
}

/// Parts of keys whose values are credentials.
const SECRET_KEYS: [&str; 9] =
    ["token", "_auth", "password", "passwd", "secret", "signing", "apikey", "credential", "username"];

/// Returns `text` without credentials.
pub(super) fn redact(text: &str, format: FileFormat) -> String {
    let kept = match format {
        FileFormat::Settings => redact_settings(text),
        FileFormat::MavenSettings => {
            ["servers", "proxies"].iter().fold(text.to_owned(), |text, name| without(&text, name))
        }
    };
    remove_user_info(&kept)
}

fn redact_settings(text: &str) -> String {
    let is_secret = |line: &str| {
        let key = line.split_once('=').map_or("", |(key, _)| key).to_ascii_lowercase();
        SECRET_KEYS.iter().any(|part| key.contains(part)) || key.trim_end().ends_with("key")
    };
    text.lines().filter(|line| !is_secret(line)).flat_map(|line| [line, "\n"]).collect()
}

/// Returns XML text without the elements `name`. An element that is not closed removes the rest.
fn without(text: &str, name: &str) -> String {
    let (open, close) = (format!("<{name}"), format!("</{name}>"));
    let mut kept = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(&open) {
        let (before, element) = rest.split_at(start);
        kept.push_str(before);
        let closed = element.find(&close).map(|end| end + close.len());
        rest = closed.and_then(|end| element.get(end..)).unwrap_or("");
    }
    kept + rest
}

/// Removes `user:password@` from every URL.
fn remove_user_info(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, url) = rest.split_at(at + 3);
        kept.push_str(before);
        let end = url.find(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\'' | '<')).unwrap_or(url.len());
        let (authority, after) = url.split_at(end);
        kept.push_str(authority.rsplit_once('@').map_or(authority, |(_, host)| host));
        rest = after;
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::{FileFormat, redact};

    #[test]
    fn settings_keep_registries_and_lose_credentials() {
        let npmrc = "registry=https://me:pw@packages.example.com/npm/\n//packages.example.com/:_authToken=abc\n\
                     _auth = xyz\n@own:registry=https://own.example.com\ncafile=/etc/ca.pem\n";
        let kept = "registry=https://packages.example.com/npm/\n@own:registry=https://own.example.com\n\
                    cafile=/etc/ca.pem\n";
        assert_eq!(redact(npmrc, FileFormat::Settings), kept);
        let cargo = "[registries.own]\nindex = \"sparse+https://own.example.com/\"\ntoken = \"abc\"\n";
        assert_eq!(
            redact(cargo, FileFormat::Settings),
            "[registries.own]\nindex = \"sparse+https://own.example.com/\"\n"
        );
    }

    #[test]
    fn settings_of_maven_keep_mirrors_and_lose_servers() {
        let settings = "<settings><servers><server><id>m</id><password>p</password></server></servers>\
                        <mirrors><mirror><id>m</id><url>https://u:p@m.example.com/x</url></mirror></mirrors></settings>";
        assert_eq!(
            redact(settings, FileFormat::MavenSettings),
            "<settings><mirrors><mirror><id>m</id><url>https://m.example.com/x</url></mirror></mirrors></settings>"
        );
        assert_eq!(redact("<settings><servers><server>", FileFormat::MavenSettings), "<settings>");
    }
}
