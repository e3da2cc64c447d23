//! Reading of small kernel files in one call.
//!
//! Files in /proc report no size, and each read makes the kernel generate text again. A growing buffer would need about
//! eight reads, so this reader starts with a large one.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// More than most of these files hold.
const USUAL: usize = 8192;

/// Returns the whole text of a file in /proc or in a cgroup.
pub(crate) fn read(path: impl AsRef<Path>) -> io::Result<String> {
    let mut file = File::open(path)?;
    let (mut bytes, mut length) = (vec![0; USUAL], 0);
    loop {
        if length == bytes.len() {
            bytes.resize(2 * length, 0);
        }
        match file.read(&mut bytes[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(length);
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_any_length_are_read_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for length in [0, 1, USUAL - 1, USUAL, USUAL + 1, 5 * USUAL] {
            std::fs::write(&path, "é".repeat(length)).unwrap();
            assert_eq!(read(&path).unwrap(), "é".repeat(length), "{length}");
        }
        assert_eq!(read(directory.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
