//! Checks of `.gitmodules`, whose settings can run commands and write outside a submodule.
//!
//! A person can confirm an ordinary list of submodules. A list with one of the settings that were used against git is
//! refused.

use std::path::Path;

/// The largest list that is checked.
pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// The reason against a list that git may read in another way than this file.
const UNUSUAL: &str = "it is not in the plain form that git writes";

/// Returns why a list of submodules is refused; `None` when it can be confirmed.
pub(crate) fn trick(content: &[u8]) -> Option<&'static str> {
    let Ok(text) = std::str::from_utf8(content) else { return Some("it is not text") };
    if text.contains(|sign: char| sign == '\\' || (sign.is_control() && !matches!(sign, '\n' | '\r' | '\t'))) {
        return Some(UNUSUAL);
    }
    text.lines().find_map(|line| line_trick(line.trim()))
}

fn line_trick(line: &str) -> Option<&'static str> {
    if line.is_empty() || line.starts_with(['#', ';']) {
        return None;
    }
    if let Some(section) = line.strip_prefix('[') {
        return section_trick(section);
    }
    let (key, value) = line.split_once('=').unwrap_or((line, ""));
    let (key, value) = (key.trim().to_lowercase(), value.trim());
    // Git removes quotes anywhere in a value.
    let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    if value.contains('"') || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Some(UNUSUAL);
    }
    match key.as_str() {
        "update" if value.starts_with('!') => Some("`update` of a submodule is a command"),
        "url" if value.starts_with('-') || value.contains("://-") => Some("the URL of a submodule is an option"),
        "url" if value.contains("::") => Some("the URL of a submodule names a transport program"),
        "path" if value.starts_with('-') => Some("the path of a submodule is an option"),
        "path" if leads_out(value) => Some("the path of a submodule leads out of the workspace, or into `.git`"),
        _ => None,
    }
}

/// Returns why the head of a section is refused. A setting may follow on the same line.
fn section_trick(section: &str) -> Option<&'static str> {
    let kind = section.trim_start().get(.."submodule".len());
    if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case("submodule")) {
        return Some("it has settings that are not of submodules");
    }
    let mut parts = section.splitn(3, '"');
    let (Some(_), Some(name), Some(rest)) = (parts.next(), parts.next(), parts.next()) else { return Some(UNUSUAL) };
    match rest.strip_prefix(']').map(str::trim_start) {
        Some(rest) if rest.is_empty() || rest.starts_with(['#', ';']) => {
            leads_out(name).then_some("the name of a submodule leads out of its directory")
        }
        _ => Some(UNUSUAL),
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
        let list = "# Comment\r\n[Submodule \"x\"] ; other\r\n\tpath = \"a # b\"\r\n\tshallow\r\n";
        assert_eq!(trick(list.as_bytes()), None);
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
            ("up\\\ndate = !x", "plain form"),
            ("url = ssh://-oProxyCommand=x/y", "option"),
            ("url = ext\":\":sh", "plain form"),
            ("path = .g\"i\"t/hooks", "plain form"),
            ("path = \"../x\"", "leads out"),
            ("[submodule \"y\"] update = !touch x", "plain form"),
            ("[submodule \"y\"]\rupdate = !touch x", "plain form"),
            ("\u{feff}update = !x", "plain form"),
            ("[submodule.x] update = !x", "plain form"),
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
