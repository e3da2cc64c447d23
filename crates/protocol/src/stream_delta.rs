//! Delta encoding of event streams in journal records.
//!
//! `["event: a\ndata: {\"text\":\"x\"}\n\n", [24, 4, "y"], "z"]`: each element is one server-sent event. An element
//! `[24, 4, "y"]` is an event that starts with the first 24 bytes of the previous event and ends with its last 4 bytes,
//! with `y` between them. A plain text after such an element uses the same start and end. A stream of 200 small events
//! takes about a tenth of its length, and the result stays readable.
//!
//! Kept because `cargo xtask bench gateway` needs it: the goals "streams at 32 callers" and "agent-like calls" are
//! measured with recording on, and without the delta a stream of 200 events writes 28 KB to the journal. Records hold
//! either this form (`pieces`) or the plain `text`; both must stay readable.

use memchr::memmem::Finder;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::ser::SerializeSeq as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest text that is encoded or decoded.
const MAX_BYTES: usize = 1 << 20;
/// The shortest frame. Referring to a shorter frame takes more bytes than repeating it.
const MIN_FRAME_BYTES: usize = 16;
/// The end of an event.
const EVENT_END: &str = "\n\n";

/// A text that is serialized as a delta-encoded stream.
pub(crate) struct StreamDelta<'a>(&'a str);

impl<'a> StreamDelta<'a> {
    /// Returns `None` if `text` is not an event stream, or is too long.
    pub(crate) fn new(text: &'a str) -> Option<Self> {
        let is_stream = text.starts_with("event:") || text.starts_with("data:");
        (is_stream && text.len() <= MAX_BYTES).then_some(Self(text))
    }
}

impl Serialize for StreamDelta<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut elements = serializer.serialize_seq(None)?;
        let (mut frame, mut previous) = (EventFrame::default(), "");
        for event in split_events(self.0) {
            match frame.better(previous, event) {
                Some((better, inside)) => {
                    frame = better;
                    elements.serialize_element(&(frame.head.len(), frame.tail.len(), inside))?;
                }
                None => elements.serialize_element(frame.inside(event).unwrap_or(event))?,
            }
            previous = event;
        }
        elements.end()
    }
}

/// Returns the events of `text`, each with its end.
fn split_events(text: &str) -> impl Iterator<Item = &str> {
    let (finder, mut rest) = (Finder::new(EVENT_END), text);
    std::iter::from_fn(move || {
        let end = finder.find(rest.as_bytes()).map_or(rest.len(), |start| start + EVENT_END.len());
        let (event, others) = rest.split_at(end);
        rest = others;
        Some(event).filter(|event| !event.is_empty())
    })
}

/// The common start and end of consecutive events.
#[derive(Clone, Copy, Default)]
struct EventFrame<'a> {
    head: &'a str,
    tail: &'a str,
}

impl<'a> EventFrame<'a> {
    /// Returns the frame of `event` and the previous event, with the text inside it, if that is better than this frame.
    fn better<'e>(&self, previous: &'a str, event: &'e str) -> Option<(Self, &'e str)> {
        let inside = self.inside(event);
        // Most events fit the current frame and contain little else.
        if inside.is_some_and(|inside| inside.len() <= self.len()) {
            return None;
        }
        let common = Self::common(previous, event);
        if inside.is_some() && common.len() < self.len() + MIN_FRAME_BYTES {
            return None;
        }
        common.inside(event).map(|inside| (common, inside))
    }

    /// Returns the longest frame of two events; empty if it is too short.
    fn common(previous: &'a str, event: &str) -> Self {
        let mut head = common_bytes(previous.bytes(), event.bytes());
        while !event.is_char_boundary(head) {
            head -= 1;
        }
        let mut tail = common_bytes(previous.bytes().skip(head).rev(), event.bytes().skip(head).rev());
        while !event.is_char_boundary(event.len() - tail) {
            tail -= 1;
        }
        if head + tail < MIN_FRAME_BYTES {
            return Self::default();
        }
        Self { head: &previous[..head], tail: &previous[previous.len() - tail..] }
    }

    fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Returns the text inside the frame; `None` if `event` does not have this frame. Every event has the empty frame.
    fn inside<'e>(&self, event: &'e str) -> Option<&'e str> {
        event.strip_prefix(self.head)?.strip_suffix(self.tail)
    }
}

/// Returns how many of the first bytes are equal.
fn common_bytes(one: impl Iterator<Item = u8>, other: impl Iterator<Item = u8>) -> usize {
    one.zip(other).take_while(|(one, other)| one == other).count()
}

/// A text that was decoded from a delta-encoded stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DecodedStream(pub(crate) String);

/// One element of the encoding.
#[derive(Deserialize)]
#[serde(untagged)]
enum StreamElement {
    SameFrame(String),
    NewFrame(usize, usize, String),
}

impl<'de> Deserialize<'de> for DecodedStream {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(StreamVisitor)
    }
}

struct StreamVisitor;

impl<'de> Visitor<'de> for StreamVisitor {
    type Value = DecodedStream;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a delta-encoded stream")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<DecodedStream, A::Error> {
        let (mut text, mut previous) = (String::new(), 0);
        let (mut head, mut tail) = (String::new(), String::new());
        while let Some(element) = elements.next_element()? {
            let inside = match element {
                StreamElement::SameFrame(inside) => inside,
                StreamElement::NewFrame(head_bytes, tail_bytes, inside) => {
                    let frame = read_frame(&text[previous..], head_bytes, tail_bytes);
                    (head, tail) =
                        frame.ok_or_else(|| A::Error::custom("a frame is longer than the previous event"))?;
                    inside
                }
            };
            if text.len() + head.len() + inside.len() + tail.len() > MAX_BYTES {
                return Err(A::Error::custom(format_args!("the stream is longer than {MAX_BYTES} bytes")));
            }
            previous = text.len();
            text.extend([head.as_str(), &inside, &tail]);
        }
        Ok(DecodedStream(text))
    }
}

/// Returns the first and the last bytes of `event`; `None` if it is too short or a character would be split.
fn read_frame(event: &str, head_bytes: usize, tail_bytes: usize) -> Option<(String, String)> {
    let end = event.len().checked_sub(tail_bytes).filter(|end| head_bytes <= *end)?;
    Some((event.get(..head_bytes)?.to_owned(), event.get(end..)?.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn encode(text: &str) -> Value {
        serde_json::to_value(StreamDelta::new(text).unwrap()).unwrap()
    }

    fn decode(elements: Value) -> Result<String, String> {
        serde_json::from_value::<DecodedStream>(elements)
            .map(|DecodedStream(text)| text)
            .map_err(|error| error.to_string())
    }

    /// A second, simple decoder; returns `None` for an invalid encoding.
    fn decode_simply(elements: &[Value]) -> Option<Vec<u8>> {
        let valid = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok().map(String::into_bytes);
        let (mut text, mut event, mut head, mut tail) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for element in elements {
            let inside = match element.as_array() {
                Some(element) => {
                    let count = |index: usize| usize::try_from(element[index].as_u64()?).ok();
                    let (first, last) = (count(0)?, count(1)?);
                    if first + last > event.len() {
                        return None;
                    }
                    (head, tail) = (valid(&event[..first])?, valid(&event[event.len() - last..])?);
                    &element[2]
                }
                None => element,
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
    fn example_in_the_header_is_true() {
        let text = ["x", "y", "z"].map(|word| format!("event: a\ndata: {{\"text\":\"{word}\"}}\n\n")).concat();
        assert_eq!(encode(&text), json!(["event: a\ndata: {\"text\":\"x\"}\n\n", [24, 4, "y"], "z"]));
    }

    #[test]
    fn stream_of_words_takes_a_tenth_of_its_length() {
        let delta = |word| {
            let data =
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}});
            format!("event: content_block_delta\ndata: {data}\n\n")
        };
        let words = ["Once", " upon", " a", " time", " there", " was", " a", " function", ":\n\n", "\"No"];
        let text: String = words.iter().cycle().take(200).map(delta).collect();
        let (elements, whole) = (encode(&text).to_string(), Value::from(text).to_string());
        assert!(elements.len() * 10 < whole.len(), "{} of {} bytes", elements.len(), whole.len());
    }

    #[test]
    fn frame_is_written_once_for_consecutive_events() {
        let text = ["event: start\ndata: {}\n\n", &delta("Once"), &delta(" upon"), &delta(" a"), &delta("")].concat();
        let elements = encode(&(text.clone() + "event: stop\n"));
        assert_eq!(
            elements,
            json!(["event: start\ndata: {}\n\n", delta("Once"), [38, 4, " upon"], " a", "", [0, 0, "event: stop\n"],])
        );
        assert_eq!(decode(elements).unwrap(), text + "event: stop\n");
    }

    #[test]
    fn longer_frame_replaces_a_shorter_one() {
        // The second event shares little with the first, and the third shares much with the second.
        let text = ["event: content_block_start\n\n", "event: content_block_delta 0123456789012345 a\n\n"].concat()
            + "event: content_block_delta 0123456789012345 b\n\n";
        assert_eq!(encode(&text)[2], json!([44, 2, "b"]));
    }

    #[test]
    fn invalid_encodings_are_rejected() {
        for elements in [json!([[1, 0, "x"]]), json!(["ab", [2, 1, "x"]]), json!(["é", [1, 0, "x"]]), json!([1])] {
            assert!(decode(elements.clone()).is_err(), "{elements}");
        }
        let long = json!(["x".repeat(MAX_BYTES / 2), [MAX_BYTES / 2, 0, ""], "", ""]);
        assert!(decode(long).unwrap_err().contains("longer"));
        assert_eq!(decode(json!([])).unwrap(), "");
    }

    #[test]
    fn other_texts_are_not_encoded() {
        assert!(StreamDelta::new("{}").is_none() && StreamDelta::new("").is_none());
        assert!(StreamDelta::new(&format!("data: {}", "x".repeat(MAX_BYTES))).is_none());
    }

    proptest! {
        #[test]
        fn every_stream_round_trips(events in vec("(data: )?[aébß€]{0,6}0123456789abcdef[é€x]{0,4}(\n\n|\n|)", 0..12)) {
            let text = format!("data: {}", events.concat());
            prop_assert_eq!(decode(encode(&text)).unwrap(), text);
        }

        #[test]
        fn foreign_encoding_is_decoded_correctly_or_rejected(elements in vec(prop_oneof![
            "[aé]{0,3}".prop_map(Value::from),
            (0..5_usize, 0..5_usize, "[aé]{0,3}").prop_map(|element| json!(element)),
        ], 0..6)) {
            prop_assert_eq!(decode(json!(elements)).ok().map(String::into_bytes), decode_simply(&elements));
        }
    }
}
