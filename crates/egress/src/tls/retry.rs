//! Detection of a HelloRetryRequest, after which a client could name another server.
//!
//! After a HelloRetryRequest the client sends a second unencrypted ClientHello, and some servers use its name. So the
//! proxy checks the server's first message, and a second ClientHello must have the same name.

const RECORD_HEADER: usize = 5;
const HANDSHAKE: u8 = 22;
const SERVER_HELLO: u8 = 2;

/// Bytes of a server's first record that identify a retry: record header, message header, version, random.
pub(crate) const RETRY_BYTES: usize = RECORD_HEADER + 4 + 2 + 32;

/// The random value that makes a ServerHello a HelloRetryRequest (RFC 8446, section 4.1.3).
const RETRY_RANDOM: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11,
    0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// Returns whether a server's first bytes are a HelloRetryRequest.
pub(crate) fn is_retry(bytes: &[u8]) -> bool {
    bytes.len() >= RETRY_BYTES
        && bytes[0] == HANDSHAKE
        && bytes[RECORD_HEADER] == SERVER_HELLO
        && bytes[RETRY_BYTES - 32..RETRY_BYTES] == RETRY_RANDOM
}

/// A client's record between its two hellos.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextRecord {
    /// The start of its second hello.
    Handshake,
    /// Another record, with its length including the header.
    Other(usize),
}

/// Returns the kind of the record at the start of `bytes`; `None` if more bytes are needed.
pub(crate) fn next_record(bytes: &[u8]) -> Option<NextRecord> {
    let header = bytes.first_chunk::<RECORD_HEADER>()?;
    if header[0] == HANDSHAKE {
        return Some(NextRecord::Handshake);
    }
    Some(NextRecord::Other(RECORD_HEADER + usize::from(u16::from_be_bytes([header[3], header[4]]))))
}
