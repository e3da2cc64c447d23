//! Restoring of saved changes in a new sandbox, so that a session can continue.
//!
//! Commands inside restore the changes, with the rights of the sandbox user. The host only sends names and bytes.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tokio::io::AsyncRead;
use tokio::net::unix::pipe;

use super::content_store::ContentStore;
use super::{SavedChange, SavedChanges, SavedEntry};
use crate::exec::run_with_input;
use crate::overlay::ChangeKind;
use crate::{ExecSpec, Sandbox, SandboxError};

/// The most bytes of a failing tool's output.
const MAX_OUTPUT: usize = 4096;

impl SavedChanges {
    /// Restores these changes in the workspace of `sandbox`. Call it before the session's commands run.
    pub async fn restore(&self, sandbox: &dyn Sandbox) -> Result<(), SandboxError> {
        let gone = self.gone();
        if !gone.is_empty() {
            let names = Box::new(io::Cursor::new(gone));
            tool(sandbox, &["xargs", "-0", "rm", "-rf", "--"], names).await?;
        }
        if self.changes().all(|change| change.kind == ChangeKind::Deleted) {
            return Ok(());
        }
        let (writer, reader) = pipe::pipe().map_err(failed)?;
        let writer = std::fs::File::from(writer.into_blocking_fd().map_err(failed)?);
        let saved = self.clone();
        let packing = tokio::task::spawn_blocking(move || saved.pack(writer));
        let unpacked = tool(sandbox, &["tar", "-x", "-f", "-", "--same-permissions"], Box::new(reader)).await;
        // The tool's error is more useful than the broken pipe that it causes.
        unpacked?;
        packing.await.map_err(|_| SandboxError::Gone)?.map_err(failed)
    }

    /// Returns the paths to remove, each with a final NUL: deleted ones, and those that changed between file and directory.
    fn gone(&self) -> Vec<u8> {
        let in_the_way = |change: &SavedChange| {
            let is_directory = matches!(change.entry, Some(SavedEntry::Directory { .. }));
            change.base.is_some_and(|base| base.is_directory() != is_directory)
        };
        let gone = self.changes().filter(|change| change.kind == ChangeKind::Deleted || in_the_way(change));
        gone.flat_map(|change| [local(&change.path).as_os_str().as_bytes(), b"\0"].concat()).collect()
    }

    /// Writes a tar archive of the saved directories, files and links.
    fn pack(&self, to: impl Write) -> io::Result<()> {
        let contents = ContentStore::of(self.directory());
        let mut archive = tar::Builder::new(to);
        for change in self.changes() {
            let mut header = tar::Header::new_gnu();
            let path = local(&change.path);
            match &change.entry {
                Some(SavedEntry::Regular { mode, size, sha256 }) => {
                    header.set_entry_type(tar::EntryType::Regular);
                    header.set_mode(*mode);
                    header.set_size(*size);
                    archive.append_data(&mut header, path, contents.open(sha256)?)?;
                }
                Some(SavedEntry::Directory { mode }) => {
                    header.set_entry_type(tar::EntryType::Directory);
                    header.set_mode(*mode);
                    header.set_size(0);
                    archive.append_data(&mut header, path, io::empty())?;
                }
                Some(SavedEntry::Symlink { target }) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_mode(0o777);
                    header.set_size(0);
                    archive.append_link(&mut header, path, target)?;
                }
                Some(SavedEntry::Special { .. } | SavedEntry::Unsaved { .. }) | None => {}
            }
        }
        archive.into_inner()?.flush()
    }
}

/// Returns the path with `./`, so that tools do not take it for an option.
fn local(path: &Path) -> PathBuf {
    Path::new(".").join(path)
}

async fn tool(
    sandbox: &dyn Sandbox,
    command: &[&str],
    input: Box<dyn AsyncRead + Send + Unpin>,
) -> Result<(), SandboxError> {
    let spec = ExecSpec {
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        output_limit: Some(MAX_OUTPUT),
        ..ExecSpec::default()
    };
    let result = run_with_input(sandbox, spec, input, &mut |_, _| {}).await?;
    match result.exit.code {
        Some(0) => Ok(()),
        _ => Err(failed(io::Error::other(String::from_utf8_lossy(&result.stderr).trim().to_owned()))),
    }
}

fn failed(source: io::Error) -> SandboxError {
    SandboxError::Create { step: "restore the saved changes".into(), source }
}
