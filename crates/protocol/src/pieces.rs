//! A stream of events as text, without what its events have in common.
//!
//! `["event: a\ndata: {\"text\":\"x\"}\n\n", [24, 4, "y"], "z"]`: a piece is an event. Where it is a list, it begins with
//! so many bytes of the event before, ends with so many bytes of it, and says what stands in between; a text behind it
//! stands in the same frame. What a model says word by word is a tenth as long like this, and can be read.

use memchr::memmem::Finder;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::ser::SerializeSeq as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// No longer text is taken apart, or put together from pieces that somebody else may have written.
const MOST_BYTES: usize = 1 << 20;
/// A frame of fewer bytes is longer to name than to repeat.
const LEAST_FRAME: usize = 16;
/// What an event ends with.
const END: &str = "\n\n";

/// A text that is written in pieces.
pub(crate) struct Pieces<'a>(&'a str);

impl<'a> Pieces<'a> {
    /// None where `text` is no stream of events.
    pub(crate) fn of(text: &'a str) -> Option<Self> {
        let begins = text.starts_with("event:") || text.starts_with("data:");
        (begins && text.len() <= MOST_BYTES).then_some(Self(text))
    }
}

impl Serialize for Pieces<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut pieces = serializer.serialize_seq(None)?;
        let (mut frame, mut before) = (Frame::default(), "");
        for event in events(self.0) {
            match frame.better(before, event) {
                Some((better, inside)) => {
                    frame = better;
                    pieces.serialize_element(&(frame.head.len(), frame.tail.len(), inside))?;
                }
                None => pieces.serialize_element(frame.inside(event).unwrap_or(event))?,
            }
            before = event;
        }
        pieces.end()
    }
}

/// The events of `text`, each with its end.
fn events(text: &str) -> impl Iterator<Item = &str> {
    let (ends, mut rest) = (Finder::new(END), text);
    std::iter::from_fn(move || {
        let end = ends.find(rest.as_bytes()).map_or(rest.len(), |place| place + END.len());
        let (event, others) = rest.split_at(end);
        rest = others;
        Some(event).filter(|event| !event.is_empty())
    })
}

/// What events have in common: how they begin, and how they end.
#[derive(Clone, Copy, Default)]
struct Frame<'a> {
    head: &'a str,
    tail: &'a str,
}

impl<'a> Frame<'a> {
    /// The longest frame that `event` has in common with the one before, and what stands in it; none: it stays in this.
    fn better<'e>(&self, before: &'a str, event: &'e str) -> Option<(Self, &'e str)> {
        let inside = self.inside(event);
        // Most events fit, and say little else.
        if inside.is_some_and(|inside| inside.len() <= self.len()) {
            return None;
        }
        let common = Self::common(before, event);
        if inside.is_some() && common.len() < self.len() + LEAST_FRAME {
            return None;
        }
        common.inside(event).map(|inside| (common, inside))
    }

    /// The longest of two events; empty where it is not worth its name.
    fn common(before: &'a str, event: &str) -> Self {
        let mut head = same(before.bytes(), event.bytes());
        while !event.is_char_boundary(head) {
            head -= 1;
        }
        let mut tail = same(before.bytes().skip(head).rev(), event.bytes().skip(head).rev());
        while !event.is_char_boundary(event.len() - tail) {
            tail -= 1;
        }
        if head + tail < LEAST_FRAME {
            return Self::default();
        }
        Self { head: &before[..head], tail: &before[before.len() - tail..] }
    }

    fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// What stands in it, if `event` has this frame. Every event has the empty one.
    fn inside<'e>(&self, event: &'e str) -> Option<&'e str> {
        event.strip_prefix(self.head)?.strip_suffix(self.tail)
    }
}

/// How many of the first bytes are the same.
fn same(one: impl Iterator<Item = u8>, other: impl Iterator<Item = u8>) -> usize {
    one.zip(other).take_while(|(one, other)| one == other).count()
}

/// A text that was read in pieces.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Joined(pub(crate) String);

/// One of them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Piece {
    Inside(String),
    Framed(usize, usize, String),
}

impl<'de> Deserialize<'de> for Joined {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Joiner)
    }
}

struct Joiner;

impl<'de> Visitor<'de> for Joiner {
    type Value = Joined;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the pieces of a text")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pieces: A) -> Result<Joined, A::Error> {
        let (mut text, mut before) = (String::new(), 0);
        let (mut head, mut tail) = (String::new(), String::new());
        while let Some(piece) = pieces.next_element()? {
            let inside = match piece {
                Piece::Inside(inside) => inside,
                Piece::Framed(first, last, inside) => {
                    let frame = frame(&text[before..], first, last);
                    (head, tail) =
                        frame.ok_or_else(|| A::Error::custom("a piece names more than the one before has"))?;
                    inside
                }
            };
            if text.len() + head.len() + inside.len() + tail.len() > MOST_BYTES {
                return Err(A::Error::custom(format_args!("the pieces are longer than {MOST_BYTES} bytes")));
            }
            before = text.len();
            text.extend([head.as_str(), &inside, &tail]);
        }
        Ok(Joined(text))
    }
}

/// The first and the last bytes of `event`, if it has as many.
fn frame(event: &str, first: usize, last: usize) -> Option<(String, String)> {
    let end = event.len().checked_sub(last).filter(|end| first <= *end)?;
    Some((event.get(..first)?.to_owned(), event.get(end..)?.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn written(text: &str) -> Value {
        serde_json::to_value(Pieces::of(text).unwrap()).unwrap()
    }

    fn read(pieces: Value) -> Result<String, String> {
        serde_json::from_value::<Joined>(pieces).map(|Joined(text)| text).map_err(|error| error.to_string())
    }

    /// What pieces say, byte by byte; none where they say what cannot be.
    fn as_it_says(pieces: &[Value]) -> Option<Vec<u8>> {
        let part = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok().map(String::into_bytes);
        let (mut text, mut event, mut head, mut tail) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for piece in pieces {
            let inside = match piece.as_array() {
                Some(piece) => {
                    let count = |place: usize| usize::try_from(piece[place].as_u64()?).ok();
                    let (first, last) = (count(0)?, count(1)?);
                    if first + last > event.len() {
                        return None;
                    }
                    (head, tail) = (part(&event[..first])?, part(&event[event.len() - last..])?);
                    &piece[2]
                }
                None => piece,
            };
            event = [&head, inside.as_str()?.as_bytes(), &tail].concat();
            text.extend_from_slice(&event);
        }
        Some(text)
    }

    fn delta(text: &str) -> String {
        format!("event: delta\ndata: {{\"index\":0,\"text\":\"{text}\"}}\n\n")
    }

    #[test]
    fn the_example_above_is_true() {
        let text = ["x", "y", "z"].map(|word| format!("event: a\ndata: {{\"text\":\"{word}\"}}\n\n")).concat();
        assert_eq!(written(&text), json!(["event: a\ndata: {\"text\":\"x\"}\n\n", [24, 4, "y"], "z"]));
    }

    #[test]
    fn what_a_model_says_word_by_word_is_a_tenth_as_long() {
        let delta = |word| {
            let data =
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}});
            format!("event: content_block_delta\ndata: {data}\n\n")
        };
        let words = ["Once", " upon", " a", " time", " there", " was", " a", " function", ":\n\n", "\"No"];
        let text: String = words.iter().cycle().take(200).map(delta).collect();
        let (pieces, whole) = (written(&text).to_string(), Value::from(text).to_string());
        assert!(pieces.len() * 10 < whole.len(), "{} of {} bytes", pieces.len(), whole.len());
    }

    #[test]
    fn a_frame_is_named_once_and_what_stands_in_it_is_said() {
        let text = ["event: start\ndata: {}\n\n", &delta("Once"), &delta(" upon"), &delta(" a"), &delta("")].concat();
        let pieces = written(&(text.clone() + "event: stop\n"));
        assert_eq!(
            pieces,
            json!(["event: start\ndata: {}\n\n", delta("Once"), [38, 4, " upon"], " a", "", [0, 0, "event: stop\n"],])
        );
        assert_eq!(read(pieces).unwrap(), text + "event: stop\n");
    }

    #[test]
    fn a_frame_gives_way_to_a_better_one() {
        // The second has a little in common with the first, and the third much with the second.
        let text = ["event: content_block_start\n\n", "event: content_block_delta 0123456789012345 a\n\n"].concat()
            + "event: content_block_delta 0123456789012345 b\n\n";
        assert_eq!(written(&text)[2], json!([44, 2, "b"]));
    }

    #[test]
    fn pieces_that_cannot_be_are_refused() {
        for pieces in [json!([[1, 0, "x"]]), json!(["ab", [2, 1, "x"]]), json!(["é", [1, 0, "x"]]), json!([1])] {
            assert!(read(pieces.clone()).is_err(), "{pieces}");
        }
        let long = json!(["x".repeat(MOST_BYTES / 2), [MOST_BYTES / 2, 0, ""], "", ""]);
        assert!(read(long).unwrap_err().contains("longer"));
        assert_eq!(read(json!([])).unwrap(), "");
    }

    #[test]
    fn what_is_no_stream_is_not_taken_apart() {
        assert!(Pieces::of("{}").is_none() && Pieces::of("").is_none());
        assert!(Pieces::of(&format!("data: {}", "x".repeat(MOST_BYTES))).is_none());
    }

    proptest! {
        #[test]
        fn every_stream_is_put_together_again(events in vec("(data: )?[aébß€]{0,6}0123456789abcdef[é€x]{0,4}(\n\n|\n|)", 0..12)) {
            let text = format!("data: {}", events.concat());
            prop_assert_eq!(read(written(&text)).unwrap(), text);
        }

        #[test]
        fn what_somebody_else_wrote_is_read_as_it_says_or_refused(pieces in vec(prop_oneof![
            "[aé]{0,3}".prop_map(Value::from),
            (0..5_usize, 0..5_usize, "[aé]{0,3}").prop_map(|piece| json!(piece)),
        ], 0..6)) {
            prop_assert_eq!(read(json!(pieces)).ok().map(String::into_bytes), as_it_says(&pieces));
        }
    }
}
