//! The file tools. All paths are in the workspace of the sandbox; no link leads out of it.

use std::io::Cursor;
use std::path::Path;

use sandbox::{ByteRange, FileKind, WorkspaceFiles};
use serde_json::{Value, json};
use session::CommandSession;
use tokio::io::AsyncReadExt;

use crate::arguments::{FileArgument, ReadArguments, encode, output_limit};
use crate::failure::ToolFailure;

/// The most entries of a directory that are listed.
const MAX_ENTRIES: usize = 1000;

/// Returns a part of a file.
pub(crate) async fn read(session: &CommandSession, arguments: ReadArguments) -> Result<Value, ToolFailure> {
    let limit = output_limit(arguments.limit, session.policy().limits().output_bytes) as u64;
    let range = ByteRange { offset: arguments.offset, limit };
    let file = session.files().read(Path::new(&arguments.path), range).await?;
    let size = file.stat.size;
    let mut bytes = Vec::new();
    file.bytes.take(limit).read_to_end(&mut bytes).await.map_err(|error| unreadable(&arguments.path, &error))?;
    let truncated = arguments.offset.saturating_add(bytes.len() as u64) < size;
    let (encoding, content) = encode(bytes);
    Ok(json!({"session": session.id(), "path": arguments.path, "bytes": size, "encoding": encoding,
        "content": content, "truncated": truncated}))
}

/// Writes files and returns their sizes. Stops at the first failure.
pub(crate) async fn write(session: &CommandSession, files: Vec<FileArgument>) -> Result<Value, ToolFailure> {
    let mut written = Vec::new();
    for file in &files {
        write_file(session.files(), file).await?;
        written.push(json!({"path": file.path, "bytes": file.bytes()?.len()}));
    }
    Ok(json!({"session": session.id(), "files": written}))
}

/// Writes one file.
pub(crate) async fn write_file(files: &dyn WorkspaceFiles, file: &FileArgument) -> Result<(), ToolFailure> {
    let bytes = file.bytes()?;
    let limit = bytes.len() as u64;
    files.write(Path::new(&file.path), Box::new(Cursor::new(bytes)), limit).await?;
    Ok(())
}

/// Returns the entries of a directory.
pub(crate) async fn list(session: &CommandSession, path: String) -> Result<Value, ToolFailure> {
    let listing = session.files().list(Path::new(&path), MAX_ENTRIES).await?;
    let entries = listing.entries.iter().map(|entry| {
        let kind = match entry.stat.kind {
            FileKind::File => "file",
            FileKind::Directory => "directory",
            FileKind::Link => "link",
            FileKind::Special => "special",
        };
        json!({"name": entry.name.to_string_lossy(), "kind": kind, "bytes": entry.stat.size})
    });
    Ok(json!({"session": session.id(), "entries": entries.collect::<Vec<_>>(), "truncated": listing.truncated}))
}

fn unreadable(path: &str, error: &std::io::Error) -> ToolFailure {
    ToolFailure::invalid(format!("cannot read {path:?}: {error}"), "read the file again")
}
