//! Buffering of complete request bodies: small ones in memory, large ones in an unnamed temporary file.

use std::io::{self, Seek, SeekFrom, Write};

use axum::body::Body;
use http_body_util::BodyExt;
use protocol::ProblemCode;
use tempfile::{SpooledData, SpooledTempFile};
use tokio_util::io::ReaderStream;

use crate::error::ApiError;

/// Larger bodies go to a file.
const IN_MEMORY: usize = 1 << 20;

/// Reads a complete body and calls `inspect` with each piece; fails if the body has more than `limit` bytes.
pub(crate) async fn spool(
    mut body: Body,
    limit: u64,
    mut inspect: impl FnMut(&[u8]),
) -> Result<SpooledTempFile, ApiError> {
    let mut file = SpooledTempFile::new(IN_MEMORY);
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiError::new(ProblemCode::InvalidRequest, error.to_string()))?;
        let Some(data) = frame.data_ref() else { continue };
        length += data.len() as u64;
        if length > limit {
            let detail = format!("the body is larger than the limit of {limit} bytes");
            return Err(ApiError::new(ProblemCode::BodyTooLarge, detail));
        }
        inspect(data);
        file.write_all(data).map_err(|error| storage_error(&error))?;
    }
    file.seek(SeekFrom::Start(0)).map_err(|error| storage_error(&error))?;
    Ok(file)
}

/// Returns the buffered bytes as a body.
pub(crate) fn into_body(file: SpooledTempFile) -> Body {
    match file.into_inner() {
        SpooledData::InMemory(bytes) => Body::from(bytes.into_inner()),
        SpooledData::OnDisk(file) => Body::from_stream(ReaderStream::new(tokio::fs::File::from_std(file))),
    }
}

/// Returns the problem that a body could not be buffered.
pub(crate) fn storage_error(error: &io::Error) -> ApiError {
    ApiError::storage("cannot buffer the body", error)
}
