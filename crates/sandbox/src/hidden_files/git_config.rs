//! Credentials in a git configuration: user names and passwords in URLs, and HTTP headers.

use policy::url_has_credentials;

/// Returns the configuration without its credentials; `None` when it has none, or is not text.
pub(super) fn without_credentials(content: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(content).ok()?;
    let mut masked = String::with_capacity(text.len());
    let mut found = false;
    let mut in_header = false;
    for line in text.split_inclusive('\n') {
        let starts_header = is_header(line);
        let hides = starts_header || in_header;
        // A value continues on the next line after a backslash.
        in_header = hides && line.trim_end().ends_with('\\');
        if hides {
            found = true;
            // An empty line keeps the line numbers in git's messages.
            masked.push('\n');
        } else if url_has_credentials(line) {
            found = true;
            masked.push_str(&without_userinfo(line));
        } else {
            masked.push_str(line);
        }
    }
    found.then(|| masked.into_bytes())
}

/// Returns whether the line sets an HTTP header, which is usually `Authorization`, or a cookie or proxy password.
fn is_header(line: &str) -> bool {
    let name = line.split('=').next().unwrap_or_default();
    // A section header and its first variable can share a line.
    let name = name.rsplit(']').next().unwrap_or(name).trim();
    ["extraheader", "proxypassword", "password", "sslkeypassword"]
        .iter()
        .any(|secret| name.eq_ignore_ascii_case(secret))
}

/// Returns the line with the user name and password removed from each URL.
fn without_userinfo(line: &str) -> String {
    let mut rest = line;
    let mut masked = String::with_capacity(line.len());
    while let Some(start) = rest.find("://") {
        let (before, after) = rest.split_at(start + 3);
        masked.push_str(before);
        let end = after.find(['/', '?', '#', ' ', '"', '\'', '\n']).unwrap_or(after.len());
        let host = after[..end].rfind('@').map_or(0, |at| at + 1);
        masked.push_str(&after[host..end]);
        rest = &after[end..];
    }
    masked.push_str(rest);
    masked
}

#[cfg(test)]
mod tests {
    use super::without_credentials;

    #[track_caller]
    fn check(before: &str, after: Option<&str>) {
        let masked = without_credentials(before.as_bytes()).map(|masked| String::from_utf8(masked).unwrap());
        assert_eq!(masked.as_deref(), after);
    }

    #[test]
    fn credentials_are_removed_and_nothing_else() {
        check("[remote \"o\"]\n\turl = https://example.com/a.git\n", None);
        check("[remote \"o\"]\n\turl = git@example.com:a.git\n\tx = ssh://git@example.com/a\n", None);
        check(
            "[remote \"o\"]\n\turl = https://me:tok@example.com/a.git\n\tfetch = +refs/*\n",
            Some("[remote \"o\"]\n\turl = https://example.com/a.git\n\tfetch = +refs/*\n"),
        );
        check("[url \"https://tok@example.com/\"]\n", Some("[url \"https://example.com/\"]\n"));
        check(
            "[http \"https://example.com/\"]\n\textraHeader = AUTHORIZATION: \\\n basic abc\n[core]\n\tbare = false\n",
            Some("[http \"https://example.com/\"]\n\n\n[core]\n\tbare = false\n"),
        );
        check("[http] extraheader = x\n", Some("\n"));
    }
}
