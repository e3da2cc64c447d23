//! Fetches the archive of a commit from GitHub or a compatible server, without git.
//!
//! The archive is not trusted: only folders and regular files are unpacked, into one folder, up to a size limit.

use std::io::{self, Cursor, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use tokio_rustls::rustls::ClientConfig;
use zip::ZipArchive;

use super::SkillError;
use super::download;
use super::fetch_proxy::FetchProxy;

use crate::storage::run_blocking;

/// Largest total size of the unpacked files, in bytes.
const MAX_BYTES: u64 = 256 << 20;
const MAX_ENTRIES: usize = 20_000;

/// Returns the URL of a commit's archive. `name` is OWNER/NAME, or the URL of a repository on a compatible server.
pub(super) fn archive_url(name: &str, reference: Option<&str>) -> Result<String, SkillError> {
    let invalid = |what: &str| SkillError::Invalid(what.to_owned());
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '-'])
            && part.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.'))
    };
    let (server, path) = match name.split_once("://") {
        None => ("https://github.com", name),
        Some(("http" | "https", rest)) => {
            let path = rest.split_once('/').ok_or_else(|| invalid(name))?.1;
            (name[..name.len() - path.len()].trim_end_matches('/'), path)
        }
        Some(_) => return Err(invalid(name)),
    };
    let (owner, repository) = path.split_once('/').ok_or_else(|| invalid(name))?;
    let repository = repository.strip_suffix(".git").unwrap_or(repository);
    if !plain(owner) || !plain(repository) {
        return Err(invalid(name));
    }
    let reference = reference.unwrap_or("HEAD");
    if !reference.split('/').all(plain) {
        return Err(invalid(reference));
    }
    Ok(format!("{server}/{owner}/{repository}/archive/{reference}.zip"))
}

/// Fetches an archive and unpacks it into the new `folder`. A failed fetch leaves no partial folder.
pub(super) async fn fetch(
    address: &str,
    proxy: &FetchProxy,
    tls: ClientConfig,
    folder: &Path,
) -> Result<(), SkillError> {
    let failed = |why: String| SkillError::Fetch { source_name: address.to_owned(), why };
    let archive = download::get(address, proxy, tls.into()).await?;
    let (new, folder) = (folder.with_extension("new"), folder.to_owned());
    let unpacked = run_blocking(move || {
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

/// Unpacks an archive without its top folder, which is named after the commit. Skips links.
fn unpack(archive: Vec<u8>, folder: &Path) -> io::Result<()> {
    let mut archive = ZipArchive::new(Cursor::new(archive)).map_err(io::Error::other)?;
    if archive.len() > MAX_ENTRIES {
        return Err(io::Error::other("the archive has more than 20000 entries"));
    }
    make_folder(folder)?;
    let mut remaining = MAX_BYTES;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(io::Error::other)?;
        let path =
            entry.enclosed_name().ok_or_else(|| io::Error::other("an entry of the archive leads out of its folder"))?;
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
        // The sizes in the archive are not trusted.
        let written = io::copy(&mut entry.by_ref().take(remaining + 1), &mut file)?;
        remaining =
            remaining.checked_sub(written).ok_or_else(|| io::Error::other("the unpacked files exceed 256 MiB"))?;
    }
    Ok(())
}

/// Creates a folder that the sandbox's user, who is another user, can read.
fn make_folder(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(path)
}

#[cfg(test)]
mod tests;
