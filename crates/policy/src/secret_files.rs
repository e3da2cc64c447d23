//! Recognition of files that contain secrets, for the entry `<secrets>` of `fs.deny_read`.
//!
//! A name alone is enough for a few well-known files. All other candidates are confirmed by their first bytes, so that
//! source code with a similar name stays visible. Names are compared without case.
//!
//! Not here: reading files, and whether git tracks them (`sandbox`). A tracked file is never hidden by `<secrets>`.

mod content;

use std::ffi::OsStr;
use std::path::Path;

pub use content::{SecretContent, url_has_credentials};

/// The entry of `fs.deny_read` that stands for the built-in recognition.
pub const SECRETS_ENTRY: &str = "<secrets>";

/// Why a path may be a secret file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretClue {
    /// The name alone shows that the file is secret.
    Name,
    /// The first bytes of the file must confirm it.
    Content(SecretContent),
}

/// How many bytes at the beginning of a candidate are read.
pub const SECRET_HEAD_BYTES: usize = 32 * 1024;

/// Directories that contain nothing but secrets and settings of one person.
const DIRECTORIES: [&str; 5] = [".ssh", ".aws", ".gnupg", ".kube", ".azure"];
/// Directories of package managers and build tools. Their files are not confirmed by content: a library's certificates
/// and test keys are not secrets, and programs break without them.
const PACKAGE_DIRECTORIES: [&str; 12] = [
    "node_modules",
    "site-packages",
    "dist-packages",
    "vendor",
    ".venv",
    "venv",
    ".tox",
    "target",
    "bower_components",
    "__pypackages__",
    "pods",
    ".gradle",
];
/// Names that are secret without looking at the content.
const NAMES: [&str; 13] = [
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_ecdsa_sk",
    "id_ed25519_sk",
    "id_xmss",
    ".env",
    ".envrc",
    ".pgpass",
    ".my.cnf",
    ".vault-token",
    ".vault_pass",
];
/// Words that mark a template, which has no values.
const TEMPLATES: [&str; 7] = ["example", "sample", "template", "dist", "defaults", "schema", "tmpl"];
/// Files of tools that contain credentials or not.
const CREDENTIAL_FILES: [&str; 14] = [
    ".npmrc",
    ".pypirc",
    ".netrc",
    "_netrc",
    ".git-credentials",
    ".yarnrc",
    ".yarnrc.yml",
    ".dockercfg",
    "pip.conf",
    ".terraformrc",
    "credentials",
    "credentials.toml",
    "credentials.tfrc.json",
    "kubeconfig",
];
/// Endings of key files and key stores.
const KEY_ENDINGS: [&str; 19] = [
    "pem", "key", "p12", "pfx", "p8", "pk8", "der", "ppk", "jks", "keystore", "kdbx", "age", "agekey", "asc", "gpg",
    "pgp", "ovpn", "crt", "cer",
];
/// Endings of files that contain a key only if their name says so.
const NEUTRAL_ENDINGS: [&str; 9] = ["txt", "bak", "old", "orig", "backup", "json", "yaml", "yml", "conf"];
/// Words of names that suggest a key.
const KEY_WORDS: [&str; 9] =
    ["key", "rsa", "dsa", "ed25519", "secret", "private", "credential", "service-account", "service_account"];

/// Returns why `path`, relative to the workspace, may be a secret file; `None` when it is an ordinary file.
pub fn secret_clue(path: &Path) -> Option<SecretClue> {
    let name = &*path.file_name()?.to_string_lossy().to_ascii_lowercase();
    if is_secret_name(name) {
        return Some(SecretClue::Name);
    }
    let content = content_clue(name, path)?;
    (!is_in_package(path)).then_some(SecretClue::Content(content))
}

/// Returns whether everything in the directory `path` is secret.
pub fn is_secret_directory(path: &Path) -> bool {
    path.file_name().is_some_and(|name| DIRECTORIES.iter().any(|secret| name.eq_ignore_ascii_case(secret)))
}

/// Returns whether `path` is a secret by its name or by the name of a directory above it.
pub(crate) fn is_secret_by_name(path: &Path) -> bool {
    secret_clue(path) == Some(SecretClue::Name) || path.ancestors().any(is_secret_directory)
}

fn is_secret_name(name: &str) -> bool {
    let is_template = |part: &str| part.split(['.', '-', '_']).any(|word| TEMPLATES.contains(&word));
    let is_environment = name.strip_prefix(".env.").is_some_and(|rest| !is_template(rest))
        || name.strip_suffix(".env").is_some_and(|rest| !rest.is_empty() && !is_template(rest));
    NAMES.contains(&name) || is_environment || name.ends_with(".tfvars") || name.ends_with(".tfvars.json")
}

fn content_clue(name: &str, path: &Path) -> Option<SecretContent> {
    let is_docker_login = name == "config.json"
        && path.parent().and_then(Path::file_name).is_some_and(|parent| parent.eq_ignore_ascii_case(".docker"));
    if CREDENTIAL_FILES.contains(&name) || name.ends_with(".kubeconfig") || is_docker_login {
        return Some(SecretContent::Credentials);
    }
    let ending = name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).map(|(_, ending)| ending);
    let is_key = ending.is_some_and(|ending| KEY_ENDINGS.contains(&ending)) || name.starts_with("id_");
    let may_be_key = || {
        ending.is_none_or(|ending| NEUTRAL_ENDINGS.contains(&ending))
            && KEY_WORDS.iter().any(|word| name.contains(word))
    };
    (is_key || may_be_key()).then_some(SecretContent::PrivateKey)
}

fn is_in_package(path: &Path) -> bool {
    let is_package = |part: &OsStr| PACKAGE_DIRECTORIES.iter().any(|name| part.eq_ignore_ascii_case(name));
    path.parent().is_some_and(|parent| parent.iter().any(is_package))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{SecretClue, SecretContent, is_secret_by_name, secret_clue};

    #[track_caller]
    fn check(expected: Option<SecretClue>, paths: &[&str]) {
        for path in paths {
            assert_eq!(secret_clue(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn well_known_secrets_are_recognised_by_name() {
        check(
            Some(SecretClue::Name),
            &[
                ".env",
                "a/.ENV",
                ".env.local",
                ".env.production",
                "prod.env",
                ".envrc",
                "id_rsa",
                "keys/ID_ED25519",
                "id_ecdsa_sk",
                "live.tfvars",
                "live.auto.tfvars.json",
                "node_modules/x/.env",
            ],
        );
    }

    #[test]
    fn candidates_are_confirmed_by_content() {
        let key = Some(SecretClue::Content(SecretContent::PrivateKey));
        check(
            key,
            &["tls/server.pem", "Server.KEY", "id_rsa.bak", "deploy_key", "my-secret.txt", "gcp-key.json", "a.p12"],
        );
        let credentials = Some(SecretClue::Content(SecretContent::Credentials));
        check(credentials, &[".npmrc", "a/.pypirc", ".netrc", ".git-credentials", ".docker/config.json"]);
    }

    #[test]
    fn source_files_templates_and_packages_are_ordinary() {
        check(
            None,
            &[
                "src/keys.rs",
                "keyboard.js",
                ".env.example",
                ".env.production.sample",
                ".env.dist",
                "example.env",
                "env",
                "src/env.rs",
                ".venv/lib/python3/site-packages/certifi/cacert.pem",
                "node_modules/ssh2/test/server.key",
                "vendor/a/key.pem",
                "target/x.key",
                "config.json",
            ],
        );
        // The name is only a clue; a source file has no key in it.
        check(Some(SecretClue::Content(SecretContent::PrivateKey)), &["src/id_map.py"]);
    }

    #[test]
    fn directories_of_secrets_are_recognised() {
        for (path, expected) in [(".ssh/known_hosts", true), ("a/.aws/b/c", true), (".AWS", true), ("ssh/a", false)] {
            assert_eq!(is_secret_by_name(Path::new(path)), expected, "{path}");
        }
    }
}
