//! A strict parser for the ClientHello, the first and only unencrypted message of a TLS client.
//!
//! It is stricter than servers are, so that no server can see another name in a ClientHello than the proxy does.

use policy::Host;

use super::byte_cursor::ByteCursor;

const RECORD_HEADER: usize = 5;
const RECORD_MAX: usize = 1 << 14;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// Longest ClientHello. Larger than any real one, post-quantum key shares and session tickets included.
const HELLO_MAX: usize = 32 << 10;
/// Most records of one ClientHello. The parser starts over when more bytes arrive, so tiny records would be slow.
const RECORDS_MAX: usize = 64;

const SERVER_NAME: u16 = 0;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
const ENCRYPTED_SERVER_NAME: u16 = 0xffce;

/// A parsed ClientHello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientHello {
    /// The requested server name; `None` if the client sent none.
    pub(crate) server_name: Option<Host>,
}

/// The reason why the first bytes of a tunnel are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HelloError {
    /// Another protocol than TLS.
    #[error("only TLS is allowed in a tunnel")]
    NotTls,
    /// Invalid TLS, or TLS that servers could read in different ways.
    #[error("invalid ClientHello: {0}")]
    Malformed(&'static str),
    /// The server name is encrypted.
    #[error("the ClientHello encrypts its server name (ECH)")]
    EncryptedName,
}

impl ClientHello {
    /// Parses the records at the start of `bytes`. Returns the hello and its length; `None` if more bytes are needed.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, HelloError> {
        let mut message = Vec::new();
        let mut read = 0;
        for _ in 0..RECORDS_MAX {
            let Some(fragment) = record(&bytes[read..])? else { return Ok(None) };
            read += RECORD_HEADER + fragment.len();
            message.extend_from_slice(fragment);
            let mut cursor = ByteCursor::new(&message);
            let Some((kind, length)) = cursor.u8().zip(cursor.u24()) else { continue };
            if kind != CLIENT_HELLO {
                return Err(HelloError::Malformed("unexpected message type"));
            }
            let length = length as usize;
            if length > HELLO_MAX {
                return Err(HelloError::Malformed("the message is too long"));
            }
            let Some(body) = cursor.take(length) else { continue };
            if !cursor.is_empty() {
                return Err(HelloError::Malformed("unexpected bytes after it in its record"));
            }
            return Ok(Some((parse(body)?, read)));
        }
        Err(HelloError::Malformed("too many records"))
    }
}

/// Returns the content of the handshake record at the start of `bytes`; `None` if it is incomplete.
fn record(bytes: &[u8]) -> Result<Option<&[u8]>, HelloError> {
    // The first byte decides, so that another protocol is refused at once.
    if bytes.first().is_some_and(|kind| *kind != HANDSHAKE) || bytes.get(1).is_some_and(|major| *major != 3) {
        return Err(HelloError::NotTls);
    }
    let mut cursor = ByteCursor::new(bytes);
    let Some(length) = cursor.take(3).and_then(|_| cursor.u16()) else { return Ok(None) };
    let length = usize::from(length);
    if length == 0 || length > RECORD_MAX {
        return Err(HelloError::Malformed("a record is empty or too long"));
    }
    Ok(cursor.take(length))
}

fn parse(body: &[u8]) -> Result<ClientHello, HelloError> {
    let cut = HelloError::Malformed("a field exceeds the message");
    let mut cursor = ByteCursor::new(body);
    let (version, _random) = cursor.u16().zip(cursor.take(32)).ok_or(cut)?;
    if version >> 8 != 3 {
        return Err(HelloError::Malformed("unknown version"));
    }
    let session = cursor.vector8().ok_or(cut)?;
    let suites = cursor.vector16().ok_or(cut)?;
    let compressions = cursor.vector8().ok_or(cut)?;
    if session.len() > 32 || suites.is_empty() || !suites.len().is_multiple_of(2) || compressions.is_empty() {
        return Err(HelloError::Malformed("a field has an invalid length"));
    }
    if cursor.is_empty() {
        return Ok(ClientHello { server_name: None });
    }
    let extensions = cursor.vector16().ok_or(cut)?;
    if !cursor.is_empty() {
        return Err(HelloError::Malformed("unexpected bytes after the extensions"));
    }
    Ok(ClientHello { server_name: server_name(extensions)? })
}

fn server_name(extensions: &[u8]) -> Result<Option<Host>, HelloError> {
    let cut = HelloError::Malformed("an extension exceeds the message");
    let mut cursor = ByteCursor::new(extensions);
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
            ENCRYPTED_CLIENT_HELLO | ENCRYPTED_SERVER_NAME => return Err(HelloError::EncryptedName),
            _ => {}
        }
    }
    Ok(name)
}

/// Parses the extension: a list of typed names, of which TLS defines one type and clients send one name.
fn parse_name(content: &[u8]) -> Result<Host, HelloError> {
    let wrong = HelloError::Malformed("invalid server name");
    let mut cursor = ByteCursor::new(content);
    let mut list = ByteCursor::new(cursor.vector16().ok_or(wrong)?);
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
