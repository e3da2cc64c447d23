//! A question as programs ask it (RFC 1035), read strictly, and the few answers there are.

use std::net::Ipv4Addr;

/// What every listed name leads to: an address for examples (RFC 5737), which leads nowhere.
const NOWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Seconds an answer may be kept: a name can be listed or struck off at any time.
const KEPT_SECS: u32 = 1;

const HEADER: usize = 12;
const NAME_MAX: usize = 255;
const LABEL_MAX: usize = 63;
const ADDRESS: u16 = 1;
/// Zone transfers, requests for everything, and what only name servers ask each other.
const REFUSED_KINDS: std::ops::RangeInclusive<u16> = 249..=255;
const INTERNET: u16 = 1;

/// One question.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// The name, as it was written.
    pub(super) name: String,
    kind: u16,
    /// Where it ends in the message.
    end: usize,
}

/// What is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The address that leads nowhere.
    Placeholder,
    /// The name is there, and nothing of this kind is known of it.
    Nothing,
    /// There is no such name.
    NoSuchName,
    /// It cannot be read.
    Malformed,
    /// Something else than a question.
    NotDone,
    /// A question that is not answered.
    Refused,
}

impl Question {
    /// Reads a message. None: it is no question, and nobody is answered; an error is the answer.
    pub(super) fn read(message: &[u8]) -> Option<Result<Self, Answer>> {
        let header = message.get(..HEADER)?;
        // An answer to us would be the beginning of a conversation between two servers.
        if header[2] & 0x80 != 0 {
            return None;
        }
        let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        if header[2] & 0x78 != 0 {
            return Some(Err(Answer::NotDone));
        }
        if number(4) != 1 || number(6) != 0 || number(8) != 0 {
            return Some(Err(Answer::Malformed));
        }
        Some(Self::read_one(message).ok_or(Answer::Malformed).and_then(|(question, class)| {
            let known = class == INTERNET && !REFUSED_KINDS.contains(&question.kind);
            if known { Ok(question) } else { Err(Answer::Refused) }
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
            // A pointer has nothing before it to point at.
            if length > LABEL_MAX || at + length > HEADER + NAME_MAX {
                return None;
            }
            let label = message.get(at..at + length)?;
            // A dot in a label would be read as two labels by whoever writes the name down.
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

    /// What is answered where the name is listed.
    pub(super) fn placeholder(&self) -> Answer {
        if self.kind == ADDRESS { Answer::Placeholder } else { Answer::Nothing }
    }
}

impl Answer {
    /// The message that answers `asked`, which has a whole header.
    pub(super) fn bytes(self, asked: &[u8], question: Option<&Question>) -> Vec<u8> {
        let code = match self {
            Self::Placeholder | Self::Nothing => 0,
            Self::Malformed => 1,
            Self::NoSuchName => 3,
            Self::NotDone => 4,
            Self::Refused => 5,
        };
        let answers = u8::from(self == Self::Placeholder);
        // An answer, recursion asked for as it was, and recursion available: else programs look for another server.
        let mut bytes = vec![asked[0], asked[1], 0x80 | (asked[2] & 0x79), 0x80 | code];
        bytes.extend([0, u8::from(question.is_some()), 0, answers, 0, 0, 0, 0]);
        if let Some(question) = question {
            bytes.extend_from_slice(&asked[HEADER..question.end]);
        }
        if self == Self::Placeholder {
            // The name again, as a pointer to the question.
            bytes.extend([0xc0, 0x0c, 0, 1, 0, 1]);
            bytes.extend(KEPT_SECS.to_be_bytes());
            bytes.extend([0, 4]);
            bytes.extend(NOWHERE.octets());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asking(labels: &[&[u8]], kind: u16, class: u16) -> Vec<u8> {
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
    fn a_question_is_read_and_answered_with_the_same_number_and_name() {
        let asked = asking(&[b"Api", b"example", b"com"], 1, 1);
        let question = Question::read(&asked).unwrap().unwrap();
        assert_eq!((question.name.as_str(), question.placeholder()), ("Api.example.com", Answer::Placeholder));
        let answer = question.placeholder().bytes(&asked, Some(&question));
        assert_eq!(answer[..12], [7, 9, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(answer[12..asked.len()], asked[12..]);
        assert!(answer.ends_with(&[0, 4, 192, 0, 2, 1]));
        let six = asking(&[b"api", b"example", b"com"], 28, 1);
        assert_eq!(Question::read(&six).unwrap().unwrap().placeholder(), Answer::Nothing);
    }

    #[test]
    fn what_is_no_plain_question_is_not_one() {
        let labels: [&[u8]; 2] = [b"a", b"example"];
        for kind in [251, 252, 255] {
            assert_eq!(Question::read(&asking(&labels, kind, 1)), Some(Err(Answer::Refused)));
        }
        assert_eq!(Question::read(&asking(&labels, 1, 3)), Some(Err(Answer::Refused)));
        for wrong in [&b"a.b"[..], b"a\0b", b"a b", &[0xff; 4], &[b'a'; 64]] {
            let read = Question::read(&asking(&[wrong, b"example"], 1, 1));
            assert!(matches!(read, Some(Err(Answer::Malformed | Answer::Refused))), "{wrong:?}: {read:?}");
        }
        let long: Vec<&[u8]> = vec![&[b'a'; 60]; 5];
        assert_eq!(Question::read(&asking(&long, 1, 1)), Some(Err(Answer::Malformed)));
        let mut answer = asking(&labels, 1, 1);
        answer[2] |= 0x80;
        assert_eq!(Question::read(&answer), None);
        let mut update = asking(&labels, 1, 1);
        update[2] |= 5 << 3;
        assert_eq!(Question::read(&update), Some(Err(Answer::NotDone)));
        let mut two = asking(&labels, 1, 1);
        two[5] = 2;
        assert_eq!(Question::read(&two), Some(Err(Answer::Malformed)));
        let pointer = [&asking(&[], 1, 1)[..12], &[0xc0, 0x0c, 0, 1, 0, 1]].concat();
        assert_eq!(Question::read(&pointer), Some(Err(Answer::Malformed)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_and_answered_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            match Question::read(&bytes) {
                Some(Ok(question)) => prop_assert!(question.placeholder().bytes(&bytes, Some(&question)).len() > 12),
                Some(Err(answer)) => prop_assert_eq!(answer.bytes(&bytes, None).len(), 12),
                None => {}
            }
        }
    }
}
