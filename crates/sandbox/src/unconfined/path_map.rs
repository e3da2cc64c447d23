//! A map from paths and addresses inside a sandbox to those on the host, for commands without confinement.

use std::path::{Path, PathBuf};

use crate::MODEL_URL;

/// Maps paths inside a sandbox, and the address of the gateway, to those on the host.
pub(super) struct PathMap {
    pub(super) model_url: String,
    pub(super) paths: Vec<(PathBuf, PathBuf)>,
}

impl PathMap {
    /// Maps the path `inside` to `host`.
    pub(super) fn add(&mut self, inside: PathBuf, host: PathBuf) {
        self.paths.push((inside, host));
        // The longest path comes first, so that a file placed inside a mount is found before the mount.
        self.paths.sort_by_key(|(inside, _)| std::cmp::Reverse(inside.as_os_str().len()));
    }

    /// Returns the host's form of a command word; `word` itself when it is not mapped.
    pub(super) fn map_word(&self, word: &str) -> PathBuf {
        let word = word.replace(MODEL_URL, &self.model_url);
        let path = Path::new(&word);
        let found = self.paths.iter().find_map(|(inside, host)| Some((host, path.strip_prefix(inside).ok()?)));
        match found {
            Some((host, rest)) if rest.as_os_str().is_empty() => host.clone(),
            Some((host, rest)) => host.join(rest),
            None => path.to_owned(),
        }
    }

    /// Replaces the gateway's address in the content of a placed file.
    pub(super) fn map_content(&self, content: Vec<u8>) -> Vec<u8> {
        match String::from_utf8(content) {
            Ok(text) => text.replace(MODEL_URL, &self.model_url).into_bytes(),
            Err(binary) => binary.into_bytes(),
        }
    }
}
