//! A body that is kept until it is whole: small ones in memory, large ones in a file without a name.

use std::io::{self, Seek, SeekFrom, Write};

use axum::body::Body;
use http_body_util::BodyExt;
use protocol::ProblemCode;
use tempfile::{SpooledData, SpooledTempFile};
use tokio_util::io::ReaderStream;

use crate::error::ApiError;

/// More than this is not held in memory.
const IN_MEMORY: usize = 1 << 20;

/// Reads a body of at most `most` bytes; `seen` is shown each piece of it.
pub(crate) async fn spool(mut body: Body, most: u64, mut seen: impl FnMut(&[u8])) -> Result<SpooledTempFile, ApiError> {
    let mut file = SpooledTempFile::new(IN_MEMORY);
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiError::new(ProblemCode::InvalidRequest, error.to_string()))?;
        let Some(data) = frame.data_ref() else { continue };
        length += data.len() as u64;
        if length > most {
            return Err(ApiError::new(ProblemCode::BodyTooLarge, format!("a body has at most {most} bytes here")));
        }
        seen(data);
        file.write_all(data).map_err(|error| not_kept(&error))?;
    }
    file.seek(SeekFrom::Start(0)).map_err(|error| not_kept(&error))?;
    Ok(file)
}

/// What was kept, as a body again.
pub(crate) fn body(file: SpooledTempFile) -> Body {
    match file.into_inner() {
        SpooledData::InMemory(bytes) => Body::from(bytes.into_inner()),
        SpooledData::OnDisk(file) => Body::from_stream(ReaderStream::new(tokio::fs::File::from_std(file))),
    }
}

/// The system could not keep a body.
pub(crate) fn not_kept(error: &io::Error) -> ApiError {
    ApiError::unkept("the body cannot be kept", error)
}
