//! Bytes as lower-case hexadecimal text.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Returns `bytes` as lower-case hexadecimal digits.
pub fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| digits_of(*byte)).map(char::from).collect()
}

/// Returns the two hexadecimal digits of `byte`.
pub(crate) fn digits_of(byte: u8) -> [u8; 2] {
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_two_lower_case_digits_each() {
        assert_eq!(encode_hex(&[0x00, 0x0f, 0xa5, 0xff]), "000fa5ff");
    }
}
