//! SOCKS5 (RFC 1928), as far as it is safe: CONNECT to a name, without a password.
//!
//! Names are looked up by us, after the policy said yes; a client that looks them up itself has nobody to ask.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr},
};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use crate::{refusal::Refusal, source::Source};

/// The first byte of every message.
pub(crate) const VERSION: u8 = 5;
const NO_PASSWORD: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

/// What a client asks for, the host as it was written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// How a client is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    Succeeded = 0,
    NotAllowed = 2,
    HostUnreachable = 4,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

impl Reply {
    /// The answer that fits a refusal best.
    pub(crate) fn of(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Unreachable(_) | Refusal::NoAnswer(_) => Self::HostUnreachable,
            _ => Self::NotAllowed,
        }
    }

    /// The message; the address in it is ours and tells nothing.
    pub(crate) fn bytes(self) -> [u8; 10] {
        [VERSION, self as u8, 0, 1, 0, 0, 0, 0, 0, 0]
    }
}

/// Why a client is not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocksError {
    /// It does not speak SOCKS5, or not all of it came.
    #[error("no SOCKS5 greeting or request")]
    Malformed,
    /// It wants something that is not done here.
    #[error("SOCKS5 {0:?}")]
    Unsupported(Reply),
    /// It went away.
    #[error("cannot speak SOCKS5")]
    Io(#[from] io::Error),
}

/// Greets a client and reads what it wants.
pub(crate) async fn wanted(
    source: &mut Source<impl AsyncRead + Unpin>,
    sink: &mut (impl AsyncWrite + Unpin),
) -> Result<Wanted, SocksError> {
    let greeting = exactly(source, 2).await?;
    let methods = exactly(source, greeting[1].into()).await?;
    if greeting[0] != VERSION || !methods.contains(&NO_PASSWORD) {
        sink.write_all(&[VERSION, NO_METHOD]).await?;
        return Err(SocksError::Malformed);
    }
    sink.write_all(&[VERSION, NO_PASSWORD]).await?;
    let request = exactly(source, 4).await?;
    if request[0] != VERSION || request[2] != 0 {
        return Err(SocksError::Malformed);
    }
    let host = match request[3] {
        1 => Ipv4Addr::from(<[u8; 4]>::try_from(exactly(source, 4).await?).unwrap_or_default()).to_string(),
        4 => Ipv6Addr::from(<[u8; 16]>::try_from(exactly(source, 16).await?).unwrap_or_default()).to_string(),
        3 => {
            let length = exactly(source, 1).await?[0];
            // Bytes that are no text make a name no policy can allow, which is then told like any other.
            String::from_utf8_lossy(&exactly(source, length.into()).await?).into_owned()
        }
        _ => return Err(SocksError::Unsupported(Reply::AddressNotSupported)),
    };
    let port = exactly(source, 2).await?;
    // BIND and UDP ASSOCIATE would be ways in and out that nobody looks at.
    if request[1] != CONNECT {
        return Err(SocksError::Unsupported(Reply::CommandNotSupported));
    }
    Ok(Wanted { host, port: u16::from_be_bytes([port[0], port[1]]) })
}

async fn exactly(source: &mut Source<impl AsyncRead + Unpin>, count: usize) -> Result<Vec<u8>, SocksError> {
    if !source.has(count).await? {
        return Err(SocksError::Malformed);
    }
    Ok(source.take(count))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    async fn ask(bytes: &[u8]) -> (Result<Wanted, SocksError>, Vec<u8>) {
        let mut said = Vec::new();
        (wanted(&mut Source::new(bytes), &mut said).await, said)
    }

    #[tokio::test]
    async fn a_name_or_an_address_is_read_as_it_was_written() {
        let (wanted, said) = ask(b"\x05\x02\x02\x00\x05\x01\x00\x03\x09a\0.exampl\x01\xbb").await;
        assert_eq!(wanted.unwrap(), Wanted { host: "a\0.exampl".into(), port: 443 });
        assert_eq!(said, [5, 0]);
        let (wanted, _) = ask(b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50").await;
        assert_eq!(wanted.unwrap(), Wanted { host: "127.0.0.1".into(), port: 80 });
    }

    #[tokio::test]
    async fn passwords_and_other_commands_are_not_taken() {
        assert_eq!(ask(b"\x05\x01\x02").await.1, [5, 0xff]);
        for command in [b"\x02", b"\x03", b"\x00"] {
            let bytes = [b"\x05\x01\x00\x05", &command[..], b"\x00\x03\x01a\x00\x50"].concat();
            let refused = ask(&bytes).await.0;
            assert!(matches!(refused, Err(SocksError::Unsupported(Reply::CommandNotSupported))));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let greeted = [b"\x05\x01\x00\x05", &bytes[..]].concat();
            for bytes in [&bytes, &greeted] {
                let _ = runtime.block_on(ask(bytes));
            }
        }
    }
}
