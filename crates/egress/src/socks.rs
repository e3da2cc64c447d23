//! SOCKS5 (RFC 1928), as far as it is safe: CONNECT to a name, without a password.
//!
//! Names are looked up by us, after the policy said yes; a client that looks them up itself has nobody to ask.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr},
};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use crate::{refusal::Refusal, peek_reader::Source};

/// The first byte of every message.
pub(crate) const VERSION: u8 = 5;
/// That of the version before.
pub(crate) const VERSION_4: u8 = 4;
/// What a client of that version takes for a no.
pub(crate) const REJECTED_4: [u8; 8] = [0, 0x5b, 0, 0, 0, 0, 0, 0];
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
    /// It closed before it had said what it wants.
    #[error("the connection was closed in the middle of a SOCKS5 request")]
    Closed,
    /// It wants something that is not done here, and is still to be told.
    #[error("{}", .0.what)]
    Rejected(Rejected),
    /// It went away.
    #[error("cannot speak SOCKS5")]
    Io(#[from] io::Error),
}

/// A client that is told no.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rejected {
    /// The last thing that is said to it.
    pub(crate) answer: Vec<u8>,
    /// What is wrong.
    pub(crate) what: &'static str,
    /// What it asked for, where that is known.
    pub(crate) wanted: Option<Wanted>,
}

impl SocksError {
    fn rejected(answer: &[u8], what: &'static str) -> Self {
        Self::Rejected(Rejected { answer: answer.to_vec(), what, wanted: None })
    }
}

/// Greets a client and reads what it wants.
pub(crate) async fn wanted(
    source: &mut Source<impl AsyncRead + Unpin>,
    sink: &mut (impl AsyncWrite + Unpin),
) -> Result<Wanted, SocksError> {
    let greeting = exactly(source, 2).await?;
    let methods = exactly(source, greeting[1].into()).await?;
    if !methods.contains(&NO_PASSWORD) {
        return Err(SocksError::rejected(&[VERSION, NO_METHOD], "SOCKS5 is spoken without a password here"));
    }
    sink.write_all(&[VERSION, NO_PASSWORD]).await?;
    let request = exactly(source, 4).await?;
    if request[0] != VERSION || request[2] != 0 {
        return Err(SocksError::rejected(&[], "no SOCKS5 request follows the greeting"));
    }
    let host = match request[3] {
        1 => Ipv4Addr::from(<[u8; 4]>::try_from(exactly(source, 4).await?).unwrap_or_default()).to_string(),
        4 => Ipv6Addr::from(<[u8; 16]>::try_from(exactly(source, 16).await?).unwrap_or_default()).to_string(),
        3 => {
            let length = exactly(source, 1).await?[0];
            // Bytes that are no text make a name no policy can allow, which is then told like any other.
            String::from_utf8_lossy(&exactly(source, length.into()).await?).into_owned()
        }
        _ => {
            return Err(SocksError::rejected(&Reply::AddressNotSupported.bytes(), "no such kind of address in SOCKS5"));
        }
    };
    let port = exactly(source, 2).await?;
    let wanted = Wanted { host, port: u16::from_be_bytes([port[0], port[1]]) };
    // BIND and UDP ASSOCIATE would be ways in and out that nobody looks at.
    if request[1] != CONNECT {
        let (answer, what) = (Reply::CommandNotSupported.bytes().to_vec(), "of SOCKS5 only CONNECT is served");
        return Err(SocksError::Rejected(Rejected { answer, what, wanted: Some(wanted) }));
    }
    Ok(wanted)
}

async fn exactly(source: &mut Source<impl AsyncRead + Unpin>, count: usize) -> Result<Vec<u8>, SocksError> {
    if !source.has(count).await? {
        return Err(SocksError::Closed);
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
        let rejected = |asked: (Result<Wanted, SocksError>, Vec<u8>)| match asked.0 {
            Err(SocksError::Rejected(rejected)) => rejected,
            other => panic!("{other:?}"),
        };
        assert_eq!(rejected(ask(b"\x05\x01\x02").await).answer, [5, 0xff]);
        for command in [b"\x02", b"\x03", b"\x00"] {
            let bytes = [b"\x05\x01\x00\x05", &command[..], b"\x00\x03\x01a\x00\x50"].concat();
            let rejected = rejected(ask(&bytes).await);
            assert_eq!(rejected.answer, Reply::CommandNotSupported.bytes());
            assert_eq!(rejected.wanted, Some(Wanted { host: "a".into(), port: 80 }));
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
