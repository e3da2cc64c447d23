//! A repository at GitHub, or at a server that speaks like it: one archive, no git.
//!
//! What is in an archive is not trusted: only folders and plain files are unpacked, below one folder, and no more of
//! them than a repository of skills has.

use std::io::{self, Cursor, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use tokio_rustls::rustls::ClientConfig;
use zip::ZipArchive;

use super::SkillError;
use super::download;
use super::way::Way;
use crate::shelf::blocking;

/// Bytes of all files of an archive together.
const MOST_BYTES: u64 = 256 << 20;
const MOST_ENTRIES: usize = 20_000;

/// The address of a commit's archive. `name` is OWNER/NAME, or the address of such a repository elsewhere.
pub(super) fn archive(name: &str, reference: Option<&str>) -> Result<String, SkillError> {
    let unusable = |what: &str| SkillError::Unusable(what.to_owned());
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '-'])
            && part.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.'))
    };
    let (server, path) = match name.split_once("://") {
        None => ("https://github.com", name),
        Some(("http" | "https", rest)) => {
            let path = rest.split_once('/').ok_or_else(|| unusable(name))?.1;
            (name[..name.len() - path.len()].trim_end_matches('/'), path)
        }
        Some(_) => return Err(unusable(name)),
    };
    let (owner, repository) = path.split_once('/').ok_or_else(|| unusable(name))?;
    let repository = repository.strip_suffix(".git").unwrap_or(repository);
    if !plain(owner) || !plain(repository) {
        return Err(unusable(name));
    }
    let reference = reference.unwrap_or("HEAD");
    if !reference.split('/').all(plain) {
        return Err(unusable(reference));
    }
    Ok(format!("{server}/{owner}/{repository}/archive/{reference}.zip"))
}

/// Fetches an archive and unpacks it into `folder`, which is made; half of one is never left there.
pub(super) async fn fetch(address: &str, way: &Way, tls: ClientConfig, folder: &Path) -> Result<(), SkillError> {
    let failed = |why: String| SkillError::Fetch { source_name: address.to_owned(), why };
    let archive = download::get(address, way, tls.into()).await?;
    let (new, folder) = (folder.with_extension("new"), folder.to_owned());
    let unpacked = blocking(move || {
        let placed = || -> io::Result<()> {
            if new.exists() {
                std::fs::remove_dir_all(&new)?;
            }
            unpack(archive, &new)?;
            std::fs::rename(&new, &folder)
        };
        Ok(placed())
    });
    unpacked.await.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))
}

/// Unpacks an archive without its topmost folder, which is named after the commit.
fn unpack(archive: Vec<u8>, folder: &Path) -> io::Result<()> {
    let mut archive = ZipArchive::new(Cursor::new(archive)).map_err(io::Error::other)?;
    if archive.len() > MOST_ENTRIES {
        return Err(io::Error::other("it has more files than are taken"));
    }
    make_folder(folder)?;
    let mut left = MOST_BYTES;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(io::Error::other)?;
        let path = entry.enclosed_name().ok_or_else(|| io::Error::other("a name in it leads out of it"))?;
        let path: PathBuf = path.components().skip(1).collect();
        if path.as_os_str().is_empty() || entry.is_symlink() {
            continue;
        }
        let path = folder.join(path);
        if entry.is_dir() {
            make_folder(&path)?;
            continue;
        }
        if let Some(parent) = path.parent() {
            make_folder(parent)?;
        }
        let executable = entry.unix_mode().is_some_and(|mode| mode & 0o100 != 0);
        let mode = if executable { 0o755 } else { 0o644 };
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?;
        // What the archive says of a length is not believed.
        let written = io::copy(&mut entry.by_ref().take(left + 1), &mut file)?;
        left = left.checked_sub(written).ok_or_else(|| io::Error::other("it is larger than anything that is taken"))?;
    }
    Ok(())
}

/// The user inside a sandbox is another one, and must be able to read it.
fn make_folder(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(path)
}

#[cfg(test)]
mod tests;
