//! Saved changes once more in a sandbox: a session goes on where it was, over the host as it is now.
//!
//! They are put back by commands inside, with the rights of whoever made them; the host only hands over names
//! and bytes.

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

/// What a failing tool may say.
const MAX_OUTPUT: usize = 4096;

impl SavedChanges {
    /// Makes these changes in the workspace of `sandbox`. Nothing of its session runs yet.
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
        // A tool that stopped reading has more to say than the pipe it broke.
        unpacked?;
        packing.await.map_err(|_| SandboxError::Gone)?.map_err(failed)
    }

    /// What is not there any more, or stands in the way of something of another kind; each ends in a NUL.
    fn gone(&self) -> Vec<u8> {
        let in_the_way = |change: &SavedChange| {
            let is_directory = matches!(change.entry, Some(SavedEntry::Directory { .. }));
            change.base.is_some_and(|base| base.is_directory() != is_directory)
        };
        let gone = self.changes().filter(|change| change.kind == ChangeKind::Deleted || in_the_way(change));
        gone.flat_map(|change| [local(&change.path).as_os_str().as_bytes(), b"\0"].concat()).collect()
    }

    /// A tar archive of what is there: directories, files and links. What was not kept is not in it.
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

/// No option, whatever it is called.
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
    SandboxError::Create { step: "put the earlier changes back".into(), source }
}
