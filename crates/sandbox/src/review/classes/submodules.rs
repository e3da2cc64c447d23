//! Checks of `.gitmodules`, whose settings can run commands and write outside a submodule.
//!
//! A person can confirm an ordinary list of submodules. A list with one of the settings that were used against git is
//! refused.

use std::path::Path;

/// The largest list that is checked.
pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// Returns why a list of submodules is refused; `None` when it can be confirmed.
pub(crate) fn trick(content: &[u8]) -> Option<&'static str> {
    let Ok(text) = std::str::from_utf8(content) else { return Some("it is not text") };
    // A line that ends with a backslash continues on the next one.
    let text = text.replace("\\\r\n", "").replace("\\\n", "");
    text.lines().find_map(|line| line_trick(line.trim()))
}

fn line_trick(line: &str) -> Option<&'static str> {
    if let Some(section) = line.strip_prefix('[') {
        let name = section.split_once('"').map_or("", |(_, name)| name);
        let is_submodule = section.trim_start().to_lowercase().starts_with("submodule");
        if !is_submodule {
            return Some("it has settings that are not of submodules");
        }
        return leads_out(name.rsplit_once('"').map_or(name, |(name, _)| name))
            .then_some("the name of a submodule leads out of its directory");
    }
    let (key, value) = line.split_once('=')?;
    let value = value.trim().trim_matches('"');
    match key.trim().to_lowercase().as_str() {
        "update" if value.starts_with('!') => Some("`update` of a submodule is a command"),
        "url" if value.starts_with('-') => Some("the URL of a submodule is an option"),
        "url" if value.contains("::") => Some("the URL of a submodule names a transport program"),
        "path" if value.starts_with('-') => Some("the path of a submodule is an option"),
        "path" if leads_out(value) => Some("the path of a submodule leads out of the workspace, or into `.git`"),
        _ => None,
    }
}

fn leads_out(path: &str) -> bool {
    let path = super::folded_name::folded(Path::new(path));
    path.is_absolute() || path.iter().any(|part| part == ".." || part == ".git")
}

#[cfg(test)]
mod tests {
    use super::trick;

    #[test]
    fn ordinary_lists_can_be_confirmed() {
        let list =
            "[submodule \"vendor/x\"]\n\tpath = vendor/x\n\turl = https://example.com/x.git\n\tupdate = rebase\n";
        assert_eq!(trick(list.as_bytes()), None);
        assert_eq!(trick(b""), None);
    }

    #[test]
    fn settings_that_run_commands_or_lead_out_are_found() {
        for (line, word) in [
            ("update = !touch /tmp/x", "command"),
            ("url = --upload-pack=./x", "option"),
            ("url = ext::sh -c id", "transport"),
            ("path = ../../x", "leads out"),
            ("path = a/.GIT/hooks", "leads out"),
            ("path = -x", "option"),
            ("up\\\ndate = !x", "command"),
        ] {
            let list = format!("[submodule \"x\"]\n\t{line}\n");
            assert!(
                trick(list.as_bytes()).is_some_and(|why| why.contains(word)),
                "{line}: {:?}",
                trick(list.as_bytes())
            );
        }
        assert!(trick(b"[submodule \"../../hooks\"]\n").is_some());
        assert!(trick(b"[core]\n\tfsmonitor = x\n").is_some());
        assert!(trick(b"\xff").is_some());
    }
}
