//! The one way to say hello twice: a server that asks for it, and a client that then names another server.
//!
//! After a HelloRetryRequest the client sends a second ClientHello in the clear, and some servers go by that
//! one. So the server's first message is looked at, and a second hello is held to the same name.

const RECORD_HEADER: usize = 5;
const HANDSHAKE: u8 = 22;
const SERVER_HELLO: u8 = 2;

/// How much of a server's first record tells whether it is a retry: header, message header, version, random.
pub(crate) const RETRY_BYTES: usize = RECORD_HEADER + 4 + 2 + 32;

/// The random value that makes a ServerHello a HelloRetryRequest (RFC 8446, section 4.1.3).
const RETRY_RANDOM: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11,
    0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// Whether a server's first bytes ask for a second hello.
pub(crate) fn is_retry(bytes: &[u8]) -> bool {
    bytes.len() >= RETRY_BYTES
        && bytes[0] == HANDSHAKE
        && bytes[RECORD_HEADER] == SERVER_HELLO
        && bytes[RETRY_BYTES - 32..RETRY_BYTES] == RETRY_RANDOM
}

/// A record of a client between its two hellos.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextRecord {
    /// Its second hello begins here.
    Handshake,
    /// Something else, so many bytes long with its header.
    Other(usize),
}

/// What the record that `bytes` begin with is; none: more bytes are needed.
pub(crate) fn next_record(bytes: &[u8]) -> Option<NextRecord> {
    let header = bytes.first_chunk::<RECORD_HEADER>()?;
    if header[0] == HANDSHAKE {
        return Some(NextRecord::Handshake);
    }
    Some(NextRecord::Other(RECORD_HEADER + usize::from(u16::from_be_bytes([header[3], header[4]]))))
}
