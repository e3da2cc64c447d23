//! DNS messages (RFC 1035): a strict parser for queries, and an encoder for the few responses.

use std::net::Ipv4Addr;

/// The address of every listed name: a documentation address (RFC 5737) without a route.
const PLACEHOLDER_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Lifetime of an answer in caches. Short, because the policy can change at any time.
const TTL_SECS: u32 = 1;

const HEADER: usize = 12;
const NAME_MAX: usize = 255;
const LABEL_MAX: usize = 63;
const ADDRESS: u16 = 1;
/// Query types that are refused: zone transfers, ANY, and types used only between name servers.
const REFUSED_KINDS: std::ops::RangeInclusive<u16> = 249..=255;
const INTERNET: u16 = 1;

/// One query.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DnsQuestion {
    /// The name, as the client wrote it.
    pub(super) name: String,
    kind: u16,
    /// The end of the question in the message.
    end: usize,
}

/// The kind of response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DnsAnswer {
    /// The placeholder address.
    Placeholder,
    /// The name exists but has no record of the requested type.
    NoRecord,
    /// The name does not exist.
    NoSuchName,
    /// The query cannot be parsed.
    Malformed,
    /// The message asks for another operation than a query.
    NotImplemented,
    /// The query is refused.
    Refused,
}

impl DnsQuestion {
    /// Parses a message. Returns `None` if the message gets no response; an error is the response to send.
    pub(super) fn read(message: &[u8]) -> Option<Result<Self, DnsAnswer>> {
        let header = message.get(..HEADER)?;
        // Responding to a response could start an endless exchange between two servers.
        if header[2] & 0x80 != 0 {
            return None;
        }
        let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        if header[2] & 0x78 != 0 {
            return Some(Err(DnsAnswer::NotImplemented));
        }
        if number(4) != 1 || number(6) != 0 || number(8) != 0 {
            return Some(Err(DnsAnswer::Malformed));
        }
        Some(Self::read_one(message).ok_or(DnsAnswer::Malformed).and_then(|(question, class)| {
            let known = class == INTERNET && !REFUSED_KINDS.contains(&question.kind);
            if known { Ok(question) } else { Err(DnsAnswer::Refused) }
        }))
    }

    fn read_one(message: &[u8]) -> Option<(Self, u16)> {
        let (mut at, mut labels) = (HEADER, Vec::new());
        loop {
            let length = usize::from(*message.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            // Lengths above the limit are compression pointers, and nothing precedes the name to point at.
            if length > LABEL_MAX || at + length > HEADER + NAME_MAX {
                return None;
            }
            let label = message.get(at..at + length)?;
            // A dot within a label would look like two labels in the text form of the name.
            if !label.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'.') {
                return None;
            }
            labels.push(std::str::from_utf8(label).ok()?);
            at += length;
        }
        let rest = message.get(at..at + 4)?;
        let (kind, class) = (u16::from_be_bytes([rest[0], rest[1]]), u16::from_be_bytes([rest[2], rest[3]]));
        Some((Self { name: labels.join("."), kind, end: at + 4 }, class))
    }

    /// Returns the response for a listed name.
    pub(super) fn answer_for_listed_name(&self) -> DnsAnswer {
        if self.kind == ADDRESS { DnsAnswer::Placeholder } else { DnsAnswer::NoRecord }
    }
}

impl DnsAnswer {
    /// Encodes the response to the message `query`, which must have a complete header.
    pub(super) fn bytes(self, query: &[u8], question: Option<&DnsQuestion>) -> Vec<u8> {
        let code = match self {
            Self::Placeholder | Self::NoRecord => 0,
            Self::Malformed => 1,
            Self::NoSuchName => 3,
            Self::NotImplemented => 4,
            Self::Refused => 5,
        };
        let answers = u8::from(self == Self::Placeholder);
        // Response flag, the recursion flag of the query, and "recursion available": without it programs ask another server.
        let mut bytes = vec![query[0], query[1], 0x80 | (query[2] & 0x79), 0x80 | code];
        bytes.extend([0, u8::from(question.is_some()), 0, answers, 0, 0, 0, 0]);
        if let Some(question) = question {
            bytes.extend_from_slice(&query[HEADER..question.end]);
        }
        if self == Self::Placeholder {
            // The name, as a pointer to the question.
            bytes.extend([0xc0, 0x0c, 0, 1, 0, 1]);
            bytes.extend(TTL_SECS.to_be_bytes());
            bytes.extend([0, 4]);
            bytes.extend(PLACEHOLDER_ADDRESS.octets());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode_query(labels: &[&[u8]], kind: u16, class: u16) -> Vec<u8> {
        let mut bytes = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in labels {
            bytes.push(u8::try_from(label.len()).unwrap());
            bytes.extend_from_slice(label);
        }
        bytes.push(0);
        bytes.extend(kind.to_be_bytes());
        bytes.extend(class.to_be_bytes());
        bytes
    }

    #[test]
    fn response_repeats_the_id_and_name_of_the_query() {
        let query = encode_query(&[b"Api", b"example", b"com"], 1, 1);
        let question = DnsQuestion::read(&query).unwrap().unwrap();
        assert_eq!(
            (question.name.as_str(), question.answer_for_listed_name()),
            ("Api.example.com", DnsAnswer::Placeholder)
        );
        let answer = question.answer_for_listed_name().bytes(&query, Some(&question));
        assert_eq!(answer[..12], [7, 9, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(answer[12..query.len()], query[12..]);
        assert!(answer.ends_with(&[0, 4, 192, 0, 2, 1]));
        let six = encode_query(&[b"api", b"example", b"com"], 28, 1);
        assert_eq!(DnsQuestion::read(&six).unwrap().unwrap().answer_for_listed_name(), DnsAnswer::NoRecord);
    }

    #[test]
    fn other_messages_than_plain_queries_are_rejected() {
        let labels: [&[u8]; 2] = [b"a", b"example"];
        for kind in [251, 252, 255] {
            assert_eq!(DnsQuestion::read(&encode_query(&labels, kind, 1)), Some(Err(DnsAnswer::Refused)));
        }
        assert_eq!(DnsQuestion::read(&encode_query(&labels, 1, 3)), Some(Err(DnsAnswer::Refused)));
        for wrong in [&b"a.b"[..], b"a\0b", b"a b", &[0xff; 4], &[b'a'; 64]] {
            let read = DnsQuestion::read(&encode_query(&[wrong, b"example"], 1, 1));
            assert!(matches!(read, Some(Err(DnsAnswer::Malformed | DnsAnswer::Refused))), "{wrong:?}: {read:?}");
        }
        let long: Vec<&[u8]> = vec![&[b'a'; 60]; 5];
        assert_eq!(DnsQuestion::read(&encode_query(&long, 1, 1)), Some(Err(DnsAnswer::Malformed)));
        let mut answer = encode_query(&labels, 1, 1);
        answer[2] |= 0x80;
        assert_eq!(DnsQuestion::read(&answer), None);
        let mut update = encode_query(&labels, 1, 1);
        update[2] |= 5 << 3;
        assert_eq!(DnsQuestion::read(&update), Some(Err(DnsAnswer::NotImplemented)));
        let mut two = encode_query(&labels, 1, 1);
        two[5] = 2;
        assert_eq!(DnsQuestion::read(&two), Some(Err(DnsAnswer::Malformed)));
        let pointer = [&encode_query(&[], 1, 1)[..12], &[0xc0, 0x0c, 0, 1, 0, 1]].concat();
        assert_eq!(DnsQuestion::read(&pointer), Some(Err(DnsAnswer::Malformed)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_and_answered_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            match DnsQuestion::read(&bytes) {
                Some(Ok(question)) => prop_assert!(question.answer_for_listed_name().bytes(&bytes, Some(&question)).len() > 12),
                Some(Err(answer)) => prop_assert_eq!(answer.bytes(&bytes, None).len(), 12),
                None => {}
            }
        }
    }
}
