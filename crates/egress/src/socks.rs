//! SOCKS5 (RFC 1928): only CONNECT, without a password.
//!
//! The proxy looks up names, after the policy allowed them.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr},
};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use crate::{peek_reader::PeekReader, refusal::Refusal};

/// The first byte of every SOCKS5 message.
pub(crate) const VERSION: u8 = 5;
/// The first byte of every SOCKS4 message.
pub(crate) const VERSION_4: u8 = 4;
/// The SOCKS4 reply "request rejected".
pub(crate) const SOCKS4_REJECTED: [u8; 8] = [0, 0x5b, 0, 0, 0, 0, 0, 0];
const NO_PASSWORD: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

/// The requested destination, with the host as the client wrote it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SocksTarget {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The reply code of a SOCKS5 response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocksReply {
    Succeeded = 0,
    NotAllowed = 2,
    HostUnreachable = 4,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

impl SocksReply {
    /// Returns the closest reply code for a refusal.
    pub(crate) fn from_refusal(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Unreachable(_) | Refusal::NoAnswer(_) => Self::HostUnreachable,
            _ => Self::NotAllowed,
        }
    }

    /// Encodes the reply. Its address field is unused.
    pub(crate) fn bytes(self) -> [u8; 10] {
        [VERSION, self as u8, 0, 1, 0, 0, 0, 0, 0, 0]
    }
}

/// Failure to read a SOCKS5 request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocksError {
    /// The client closed before its request was complete.
    #[error("the connection was closed in the middle of a SOCKS5 request")]
    Closed,
    /// The client asks for something unsupported. It still needs the reply.
    #[error("{}", .0.reason)]
    Rejected(SocksRejection),
    /// The connection failed.
    #[error("SOCKS5 connection failed")]
    Io(#[from] io::Error),
}

/// A rejected SOCKS5 request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SocksRejection {
    /// The reply to send.
    pub(crate) reply: Vec<u8>,
    /// The reason.
    pub(crate) reason: &'static str,
    /// The requested destination, if it is known.
    pub(crate) target: Option<SocksTarget>,
}

impl SocksError {
    fn rejected(reply: &[u8], reason: &'static str) -> Self {
        Self::Rejected(SocksRejection { reply: reply.to_vec(), reason, target: None })
    }
}

/// Answers the greeting and returns the requested destination.
pub(crate) async fn read_target(
    source: &mut PeekReader<impl AsyncRead + Unpin>,
    sink: &mut (impl AsyncWrite + Unpin),
) -> Result<SocksTarget, SocksError> {
    let greeting = read_exactly(source, 2).await?;
    let methods = read_exactly(source, greeting[1].into()).await?;
    if !methods.contains(&NO_PASSWORD) {
        return Err(SocksError::rejected(&[VERSION, NO_METHOD], "SOCKS5 authentication is not supported"));
    }
    sink.write_all(&[VERSION, NO_PASSWORD]).await?;
    let request = read_exactly(source, 4).await?;
    if request[0] != VERSION || request[2] != 0 {
        return Err(SocksError::rejected(&[], "invalid SOCKS5 request after the greeting"));
    }
    let host = match request[3] {
        1 => Ipv4Addr::from(<[u8; 4]>::try_from(read_exactly(source, 4).await?).unwrap_or_default()).to_string(),
        4 => Ipv6Addr::from(<[u8; 16]>::try_from(read_exactly(source, 16).await?).unwrap_or_default()).to_string(),
        3 => {
            let length = read_exactly(source, 1).await?[0];
            // Invalid UTF-8 becomes a name that no policy can allow, and is denied like any other.
            String::from_utf8_lossy(&read_exactly(source, length.into()).await?).into_owned()
        }
        _ => {
            return Err(SocksError::rejected(&SocksReply::AddressNotSupported.bytes(), "unknown SOCKS5 address type"));
        }
    };
    let port = read_exactly(source, 2).await?;
    let target = SocksTarget { host, port: u16::from_be_bytes([port[0], port[1]]) };
    // BIND and UDP ASSOCIATE would open paths that the policy does not check.
    if request[1] != CONNECT {
        let (reply, reason) =
            (SocksReply::CommandNotSupported.bytes().to_vec(), "only the SOCKS5 command CONNECT is supported");
        return Err(SocksError::Rejected(SocksRejection { reply, reason, target: Some(target) }));
    }
    Ok(target)
}

async fn read_exactly(source: &mut PeekReader<impl AsyncRead + Unpin>, count: usize) -> Result<Vec<u8>, SocksError> {
    if !source.fill_to(count).await? {
        return Err(SocksError::Closed);
    }
    Ok(source.take(count))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    async fn read(bytes: &[u8]) -> (Result<SocksTarget, SocksError>, Vec<u8>) {
        let mut sent = Vec::new();
        (read_target(&mut PeekReader::new(bytes), &mut sent).await, sent)
    }

    #[tokio::test]
    async fn name_or_address_is_returned_unchanged() {
        let (target, sent) = read(b"\x05\x02\x02\x00\x05\x01\x00\x03\x09a\0.exampl\x01\xbb").await;
        assert_eq!(target.unwrap(), SocksTarget { host: "a\0.exampl".into(), port: 443 });
        assert_eq!(sent, [5, 0]);
        let (target, _) = read(b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50").await;
        assert_eq!(target.unwrap(), SocksTarget { host: "127.0.0.1".into(), port: 80 });
    }

    #[tokio::test]
    async fn passwords_and_other_commands_are_rejected() {
        let rejected = |result: (Result<SocksTarget, SocksError>, Vec<u8>)| match result.0 {
            Err(SocksError::Rejected(rejected)) => rejected,
            other => panic!("{other:?}"),
        };
        assert_eq!(rejected(read(b"\x05\x01\x02").await).reply, [5, 0xff]);
        for command in [b"\x02", b"\x03", b"\x00"] {
            let bytes = [b"\x05\x01\x00\x05", &command[..], b"\x00\x03\x01a\x00\x50"].concat();
            let rejected = rejected(read(&bytes).await);
            assert_eq!(rejected.reply, SocksReply::CommandNotSupported.bytes());
            assert_eq!(rejected.target, Some(SocksTarget { host: "a".into(), port: 80 }));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let greeted = [b"\x05\x01\x00\x05", &bytes[..]].concat();
            for bytes in [&bytes, &greeted] {
                let _ = runtime.block_on(read(bytes));
            }
        }
    }
}
