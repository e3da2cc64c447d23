//! Binary content in git's patch format.
//!
//! git identifies both contents by their object ids, so that it applies such a patch only to the right file. The ids are
//! those of SHA-1 repositories, which nearly all are.

use std::fmt::Write as _;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;

/// Larger contents are not put into a patch: `git apply` then refuses the file by name.
const MAX_BYTES: usize = 256 << 10;
/// The bytes of one line.
const LINE_BYTES: usize = 52;
const DIGITS: &[u8; 85] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// Returns the lines of a binary patch; `None` when a side is too large or not known.
pub(crate) fn render(before: Option<&[u8]>, after: Option<&[u8]>) -> Option<String> {
    let (before, after) = (before?, after?);
    if before.len() > MAX_BYTES || after.len() > MAX_BYTES {
        return None;
    }
    let index = format!("index {}..{}\n", object_id(before), object_id(after));
    Some(format!("{index}GIT binary patch\n{}{}", literal(after)?, literal(before)?))
}

/// Returns one content, compressed and encoded.
fn literal(content: &[u8]) -> Option<String> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).ok()?;
    let compressed = encoder.finish().ok()?;
    let mut text = format!("literal {}\n", content.len());
    for line in compressed.chunks(LINE_BYTES) {
        let length = u8::try_from(line.len()).ok()?;
        let letter = if length <= 26 { b'A' + length - 1 } else { b'a' + length - 27 };
        text.push(char::from(letter));
        line.chunks(4).for_each(|group| text.push_str(&encoded(group)));
        text.push('\n');
    }
    text.push('\n');
    Some(text)
}

/// Returns up to four bytes as five digits of base 85.
fn encoded(group: &[u8]) -> String {
    let mut bytes = [0; 4];
    bytes.iter_mut().zip(group).for_each(|(to, from)| *to = *from);
    let mut number = u32::from_be_bytes(bytes) as usize;
    let mut digits = [b'0'; 5];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS.get(number % 85).copied().unwrap_or_default();
        number /= 85;
    }
    digits.iter().map(|digit| char::from(*digit)).collect()
}

/// Returns the object id that git gives to a content. A side without a file has the same id as an empty one in patches that
/// add or remove a file, because git compares only existing files.
fn object_id(content: &[u8]) -> String {
    let mut blob = format!("blob {}\0", content.len()).into_bytes();
    blob.extend_from_slice(content);
    sha1(&blob).iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the SHA-1 of `message`. It identifies contents for git, and protects nothing.
fn sha1(message: &[u8]) -> [u8; 20] {
    let mut padded = message.to_vec();
    padded.push(0x80);
    padded.resize(padded.len().next_multiple_of(64), 0);
    if message.len() % 64 >= 56 {
        padded.resize(padded.len() + 64, 0);
    }
    let length = padded.len();
    let bits = (message.len() as u64 * 8).to_be_bytes();
    padded.splice(length - 8.., bits);
    let mut state: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in padded.as_chunks::<64>().0 {
        compress(&mut state, block);
    }
    let mut digest = [0; 20];
    digest.chunks_mut(4).zip(state).for_each(|(to, word)| to.copy_from_slice(&word.to_be_bytes()));
    digest
}

fn compress(state: &mut [u32; 5], block: &[u8; 64]) {
    let mut words: Vec<u32> = block.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word)).collect();
    for index in 16..80 {
        let mixed = [3, 8, 14, 16].iter().fold(0, |mixed, back| mixed ^ words.get(index - back).copied().unwrap_or(0));
        words.push(mixed.rotate_left(1));
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (round, word) in words.into_iter().enumerate() {
        let (function, constant) = match round / 20 {
            0 => ((b & c) | (!b & d), 0x5a82_7999),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6),
        };
        let next = a.rotate_left(5).wrapping_add(function).wrapping_add(e).wrapping_add(constant).wrapping_add(word);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
    }
    state.iter_mut().zip([a, b, c, d, e]).for_each(|(sum, word)| *sum = sum.wrapping_add(word));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_ids_are_those_of_git() {
        assert_eq!(object_id(b""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(object_id(b"hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
        for length in [45, 46, 47, 48, 55, 56, 57, 64, 119, 120, 1000] {
            let content = vec![b'x'; length];
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &content).unwrap();
            let asked = std::process::Command::new("git").arg("hash-object").arg(file.path()).output().unwrap();
            assert_eq!(object_id(&content), String::from_utf8(asked.stdout).unwrap().trim(), "{length}");
        }
    }

    #[test]
    fn large_contents_are_not_in_a_patch() {
        assert!(render(Some(b"a\0"), Some(b"b\0")).unwrap().starts_with("index "));
        assert_eq!(render(Some(b""), Some(&vec![0; MAX_BYTES + 1])), None);
        assert_eq!(render(None, Some(b"")), None);
    }
}
