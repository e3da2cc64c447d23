//! Keys that `viv` itself handles: the detach prefix with `d`, and Ctrl-Z.
//!
//! A terminal sends a key as a byte, or as a sequence of the kitty protocol or of modifyOtherKeys when the agent has
//! chosen one. Pasted text is never read as keys. All other bytes go to the agent unchanged.

/// The longest sequence that is held back until its end arrives.
const LONGEST: usize = 64;
const PASTE_START: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";

/// The key that begins a command to `viv`: Ctrl with a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DetachPrefix(u8);

impl Default for DetachPrefix {
    fn default() -> Self {
        Self(b'\\')
    }
}

impl DetachPrefix {
    /// Parses `ctrl-` and one of `a` to `z`, `\`, `]`, `^` or `_`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let [character] = text.strip_prefix("ctrl-")?.as_bytes() else { return None };
        let usable = character.is_ascii_lowercase() && !b"cdhijm".contains(character);
        (usable || b"\\]^_".contains(character)).then_some(Self(*character))
    }
}

/// The result of typed keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TypedKey {
    /// Bytes for the agent.
    Bytes(Vec<u8>),
    /// The prefix and `d`.
    Detach,
    /// Ctrl-Z.
    Suspend,
}

/// Finds the keys of `viv` in typed bytes.
#[derive(Debug)]
pub(crate) struct KeyReader {
    prefix: DetachPrefix,
    detach: bool,
    suspend: bool,
    pending: Vec<u8>,
    /// The bytes of the prefix, after which the next key decides.
    held: Option<Vec<u8>>,
    pasting: bool,
}

/// A key, with modifiers that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Ctrl(u8),
    Plain(u8),
    /// The release of a key.
    Released(u8),
    Other,
}

impl KeyReader {
    /// Returns a reader that recognises the prefix if `detach`, and Ctrl-Z if `suspend`.
    pub(crate) fn new(prefix: DetachPrefix, detach: bool, suspend: bool) -> Self {
        Self { prefix, detach, suspend, pending: Vec::new(), held: None, pasting: false }
    }

    /// Reads typed bytes. The end of a sequence may be in a later call.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Vec<TypedKey> {
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let mut rest = pending.as_slice();
        let mut typed = Vec::new();
        while !rest.is_empty() {
            let Some(length) = key_length(rest, self.pasting) else {
                // A lone ESC is a key by itself; terminals send sequences in one piece.
                if rest.len() < LONGEST && rest.len() > 1 {
                    self.pending = rest.to_vec();
                    break;
                }
                self.key(rest, &mut typed);
                break;
            };
            let (key, after) = rest.split_at(length);
            self.key(key, &mut typed);
            rest = after;
        }
        typed
    }

    fn key(&mut self, bytes: &[u8], typed: &mut Vec<TypedKey>) {
        if self.pasting {
            self.pasting = bytes != PASTE_END;
            return pass(bytes, typed);
        }
        if bytes == PASTE_START {
            self.pasting = true;
        }
        let (key, prefix) = (decode(bytes), self.prefix.0);
        match self.held.take() {
            // A release of the prefix key says nothing.
            Some(held) if key == Key::Released(prefix) => self.held = Some(held),
            Some(_) if key == Key::Plain(b'd') => typed.push(TypedKey::Detach),
            // The prefix twice is the prefix once.
            Some(held) if key == Key::Ctrl(prefix) => pass(&held, typed),
            Some(held) => {
                pass(&held, typed);
                pass(bytes, typed);
            }
            None if self.detach && key == Key::Ctrl(prefix) => self.held = Some(bytes.to_vec()),
            None if self.detach && key == Key::Released(prefix) => {}
            None if self.suspend && key == Key::Ctrl(b'z') => typed.push(TypedKey::Suspend),
            None if self.suspend && key == Key::Released(b'z') => {}
            None => pass(bytes, typed),
        }
    }
}

fn pass(bytes: &[u8], typed: &mut Vec<TypedKey>) {
    match typed.last_mut() {
        Some(TypedKey::Bytes(before)) => before.extend_from_slice(bytes),
        _ => typed.push(TypedKey::Bytes(bytes.to_vec())),
    }
}

/// Returns the length of the first key; `None` if its end is not there yet.
fn key_length(bytes: &[u8], pasting: bool) -> Option<usize> {
    match bytes {
        [0x1b, b'[', rest @ ..] if !pasting || PASTE_END.starts_with(&bytes[..bytes.len().min(PASTE_END.len())]) => {
            rest.iter().position(|byte| (0x40..=0x7e).contains(byte)).map(|end| end + 3)
        }
        [0x1b] if pasting => None,
        [0x1b] => None,
        [0x1b, ..] if pasting => Some(1),
        // ESC and a byte is Alt with a key, or the start of an answer, which passes byte by byte.
        [0x1b, ..] => Some(2),
        _ => Some(1),
    }
}

fn decode(bytes: &[u8]) -> Key {
    match bytes {
        [byte @ 0x01..=0x1f] if *byte != 0x1b => Key::Ctrl(letter(*byte)),
        [byte] => Key::Plain(*byte),
        [0x1b, b'[', parameters @ .., b'u'] => kitty(parameters),
        // modifyOtherKeys: 27 ; modifiers ; character.
        [0x1b, b'[', b'2', b'7', b';', parameters @ .., b'~'] => {
            let text = String::from_utf8_lossy(parameters);
            let Some((modifiers, character)) = text.split_once(';') else { return Key::Other };
            with_modifiers(character, modifiers, false)
        }
        _ => Key::Other,
    }
}

/// Returns the character that Ctrl makes into this byte.
fn letter(byte: u8) -> u8 {
    if byte <= 0x1a { byte + 0x60 } else { byte + 0x40 }
}

/// Reads `character:alternatives ; modifiers:event ; text`.
fn kitty(parameters: &[u8]) -> Key {
    let text = String::from_utf8_lossy(parameters);
    let mut parts = text.split(';');
    let character = parts.next().and_then(|part| part.split(':').next()).unwrap_or_default();
    let mut modifiers = parts.next().unwrap_or("1").split(':');
    let mask = modifiers.next().unwrap_or("1");
    with_modifiers(character, mask, modifiers.next() == Some("3"))
}

fn with_modifiers(character: &str, modifiers: &str, released: bool) -> Key {
    let Ok(character) = character.parse::<u8>() else { return Key::Other };
    let mask = modifiers.parse::<u16>().unwrap_or(1).saturating_sub(1);
    // Caps lock and num lock do not count.
    match (released, mask & !(64 | 128)) {
        (true, _) => Key::Released(character),
        (false, 0) => Key::Plain(character),
        (false, 4) => Key::Ctrl(character),
        _ => Key::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parts: &[&str]) -> Vec<TypedKey> {
        let mut reader = KeyReader::new(DetachPrefix::default(), true, true);
        parts.iter().flat_map(|part| reader.read(part.as_bytes())).collect()
    }

    fn bytes(text: &str) -> TypedKey {
        TypedKey::Bytes(text.as_bytes().to_vec())
    }

    #[test]
    fn prefix_and_d_detach_in_every_encoding() {
        for text in [
            "\x1cd",
            "\x1b[92;5ud",
            "\x1b[92;5u\x1b[92;5:3ud",
            "\x1b[92:124;5:1u\x1b[100u",
            "\x1b[27;5;92~d",
            "\x1b[92;69ud",
        ] {
            assert_eq!(read(&[text]), [TypedKey::Detach], "{text:?}");
        }
        assert_eq!(read(&["\x1b[92", ";5u", "d"]), [TypedKey::Detach]);
    }

    #[test]
    fn prefix_twice_is_typed_once_and_other_keys_pass_with_it() {
        assert_eq!(read(&["\x1c\x1c"]), [bytes("\x1c")]);
        assert_eq!(read(&["\x1cx"]), [bytes("\x1cx")]);
    }

    #[test]
    fn pasted_keys_are_text() {
        let pasted = "\x1b[200~\x1cd \x1a \x1b[92;5ud\x1b[201~";
        assert_eq!(read(&[pasted, "\x1cd"]), [bytes(pasted), TypedKey::Detach]);
    }

    #[test]
    fn ctrl_z_suspends_in_every_encoding() {
        for text in ["\x1a", "\x1b[122;5u", "\x1b[27;5;122~"] {
            assert_eq!(read(&[text]), [TypedKey::Suspend], "{text:?}");
        }
    }

    #[test]
    fn other_input_passes_unchanged() {
        for text in [
            "hi\r",
            "\x1b",
            "\x1b[A\x1b[<0;3;4M",
            "\x1bOP",
            "é漢",
            "\x1b[13;2u",
            "\x1b]11;rgb:00/00/00\x1b\\",
            "\x1b[?62;c",
        ] {
            assert_eq!(read(&[text]), [bytes(text)], "{text:?}");
        }
    }

    #[test]
    fn prefix_is_parsed() {
        assert_eq!(DetachPrefix::parse("ctrl-\\"), Some(DetachPrefix::default()));
        assert_eq!(DetachPrefix::parse("ctrl-^"), Some(DetachPrefix(b'^')));
        for wrong in ["ctrl-c", "ctrl-", "a", "ctrl-ab", "ctrl-["] {
            assert_eq!(DetachPrefix::parse(wrong), None, "{wrong}");
        }
    }
}
