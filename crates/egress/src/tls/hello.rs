//! The ClientHello: the first thing a TLS client says, and the only thing it says in the clear.
//!
//! Read more strictly than servers read it, so that no server can see another name in it than we do.

use policy::Host;

use super::byte_cursor::Bytes;

const RECORD_HEADER: usize = 5;
const RECORD_MAX: usize = 1 << 14;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// Larger than any real one, post-quantum key shares and session tickets included.
const HELLO_MAX: usize = 32 << 10;
/// It is read from its start whenever more of it comes, so it may not come in crumbs.
const RECORDS_MAX: usize = 64;

const SERVER_NAME: u16 = 0;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
const ENCRYPTED_SERVER_NAME: u16 = 0xffce;

/// What the first bytes of a tunnel say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientHello {
    /// The server the client wants, a name; none: it does not say.
    pub(crate) server_name: Option<Host>,
}

/// Why the first bytes of a tunnel are not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HelloError {
    /// Another protocol.
    #[error("only TLS goes through a tunnel")]
    NotTls,
    /// TLS as no client speaks it, or that servers might read in different ways.
    #[error("the ClientHello cannot be read: {0}")]
    Malformed(&'static str),
    /// The name that counts is encrypted.
    #[error("the ClientHello hides its server name (ECH)")]
    Hidden,
}

impl ClientHello {
    /// Reads records from the start of `bytes`. None: more bytes are needed. Else also how many were read.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, HelloError> {
        let mut message = Vec::new();
        let mut read = 0;
        for _ in 0..RECORDS_MAX {
            let Some(fragment) = record(&bytes[read..])? else { return Ok(None) };
            read += RECORD_HEADER + fragment.len();
            message.extend_from_slice(fragment);
            let mut cursor = Bytes::new(&message);
            let Some((kind, length)) = cursor.u8().zip(cursor.u24()) else { continue };
            if kind != CLIENT_HELLO {
                return Err(HelloError::Malformed("it is another message"));
            }
            let length = length as usize;
            if length > HELLO_MAX {
                return Err(HelloError::Malformed("it is too long"));
            }
            let Some(body) = cursor.take(length) else { continue };
            if !cursor.is_empty() {
                return Err(HelloError::Malformed("something follows it in its record"));
            }
            return Ok(Some((parse(body)?, read)));
        }
        Err(HelloError::Malformed("it is spread over too many records"))
    }
}

/// The content of the handshake record that `bytes` begin with; none: it is not all there yet.
fn record(bytes: &[u8]) -> Result<Option<&[u8]>, HelloError> {
    // Judged by its first byte, so that another protocol is refused at once and does not wait for more.
    if bytes.first().is_some_and(|kind| *kind != HANDSHAKE) || bytes.get(1).is_some_and(|major| *major != 3) {
        return Err(HelloError::NotTls);
    }
    let mut cursor = Bytes::new(bytes);
    let Some(length) = cursor.take(3).and_then(|_| cursor.u16()) else { return Ok(None) };
    let length = usize::from(length);
    if length == 0 || length > RECORD_MAX {
        return Err(HelloError::Malformed("a record is empty or too long"));
    }
    Ok(cursor.take(length))
}

fn parse(body: &[u8]) -> Result<ClientHello, HelloError> {
    let cut = HelloError::Malformed("a field runs over its end");
    let mut cursor = Bytes::new(body);
    let (version, _random) = cursor.u16().zip(cursor.take(32)).ok_or(cut)?;
    if version >> 8 != 3 {
        return Err(HelloError::Malformed("its version is unknown"));
    }
    let session = cursor.vector8().ok_or(cut)?;
    let suites = cursor.vector16().ok_or(cut)?;
    let compressions = cursor.vector8().ok_or(cut)?;
    if session.len() > 32 || suites.is_empty() || !suites.len().is_multiple_of(2) || compressions.is_empty() {
        return Err(HelloError::Malformed("a field has a length it cannot have"));
    }
    if cursor.is_empty() {
        return Ok(ClientHello { server_name: None });
    }
    let extensions = cursor.vector16().ok_or(cut)?;
    if !cursor.is_empty() {
        return Err(HelloError::Malformed("something follows its extensions"));
    }
    Ok(ClientHello { server_name: server_name(extensions)? })
}

fn server_name(extensions: &[u8]) -> Result<Option<Host>, HelloError> {
    let cut = HelloError::Malformed("an extension runs over its end");
    let mut cursor = Bytes::new(extensions);
    let mut seen = Vec::new();
    let mut name = None;
    while !cursor.is_empty() {
        let (kind, content) = cursor.u16().zip(cursor.vector16()).ok_or(cut)?;
        if seen.contains(&kind) {
            return Err(HelloError::Malformed("an extension is given twice"));
        }
        seen.push(kind);
        match kind {
            SERVER_NAME => name = Some(parse_name(content)?),
            ENCRYPTED_CLIENT_HELLO | ENCRYPTED_SERVER_NAME => return Err(HelloError::Hidden),
            _ => {}
        }
    }
    Ok(name)
}

/// The extension is a list of names by type; in all these years one type was defined, and one name is sent.
fn parse_name(content: &[u8]) -> Result<Host, HelloError> {
    let wrong = HelloError::Malformed("its server name is none");
    let mut cursor = Bytes::new(content);
    let mut list = Bytes::new(cursor.vector16().ok_or(wrong)?);
    let (kind, name) = list.u8().zip(list.vector16()).ok_or(wrong)?;
    if kind != 0 || !list.is_empty() || !cursor.is_empty() {
        return Err(wrong);
    }
    match std::str::from_utf8(name).ok().and_then(|name| name.parse().ok()) {
        Some(name @ Host::Name(_)) => Ok(name),
        _ => Err(wrong),
    }
}

#[cfg(test)]
#[path = "hello_tests.rs"]
mod tests;
