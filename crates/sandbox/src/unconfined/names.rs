//! Names that hold in every sandbox, and what they mean where there is none.

use std::path::{Path, PathBuf};

use crate::MODEL_URL;

/// What a sandbox would show, and where it is on the host: paths, and the address of the gateway.
pub(super) struct Names {
    pub(super) model_url: String,
    pub(super) paths: Vec<(PathBuf, PathBuf)>,
}

impl Names {
    /// What is at `inside` there is at `host` here.
    pub(super) fn show(&mut self, inside: PathBuf, host: PathBuf) {
        self.paths.push((inside, host));
        // The longest first, so that a file placed inside a mount is found before the mount.
        self.paths.sort_by_key(|(inside, _)| std::cmp::Reverse(inside.as_os_str().len()));
    }

    /// `word` itself, or what it means here.
    pub(super) fn on_host(&self, word: &str) -> PathBuf {
        let word = word.replace(MODEL_URL, &self.model_url);
        let path = Path::new(&word);
        let found = self.paths.iter().find_map(|(inside, host)| Some((host, path.strip_prefix(inside).ok()?)));
        match found {
            Some((host, rest)) if rest.as_os_str().is_empty() => host.clone(),
            Some((host, rest)) => host.join(rest),
            None => path.to_owned(),
        }
    }

    /// A placed file that names the gateway names the one that is here.
    pub(super) fn in_file(&self, content: Vec<u8>) -> Vec<u8> {
        match String::from_utf8(content) {
            Ok(text) => text.replace(MODEL_URL, &self.model_url).into_bytes(),
            Err(binary) => binary.into_bytes(),
        }
    }
}
