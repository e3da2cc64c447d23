//! Tests of the ClientHello parser, with examples and random input.

use proptest::prelude::*;

use super::*;

/// Returns a ClientHello message with these extensions.
fn message(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut list = Vec::new();
    for (kind, content) in extensions {
        list.extend(kind.to_be_bytes());
        list.extend(vector16(content));
    }
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0]);
    body.extend(vector16(&list));
    let mut message = vec![CLIENT_HELLO, 0];
    message.extend(vector16(&body));
    message
}

fn vector16(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

fn name(name: &[u8]) -> (u16, Vec<u8>) {
    (SERVER_NAME, vector16(&[&[0][..], &vector16(name)].concat()))
}

/// Splits a message into records of at most `size` bytes.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|chunk| [&[HANDSHAKE, 3, 1][..], &vector16(chunk)].concat()).collect()
}

fn read(extensions: &[(u16, Vec<u8>)]) -> Result<Option<Host>, HelloError> {
    let bytes = records(&message(extensions), RECORD_MAX);
    ClientHello::read(&bytes).map(|read| read.expect("a complete hello").0.server_name)
}

#[test]
fn server_name_is_returned_if_present() {
    assert_eq!(read(&[(10, vec![1]), name(b"A.Example.com")]), Ok(Some(Host::Name("a.example.com".into()))));
    assert_eq!(read(&[(10, vec![1])]), Ok(None));
}

#[test]
fn ambiguous_hello_is_refused() {
    let two = vector16(&[&[0][..], &vector16(b"a.example.com"), &[0], &vector16(b"b.example.com")].concat());
    let typed = vector16(&[&[1][..], &vector16(b"a.example.com")].concat());
    let mut trailed = name(b"a.example.com").1;
    trailed.push(0);
    for extensions in [
        vec![name(b"a.example.com"), name(b"a.example.com")],
        vec![name(b"a.example.com"), (5, vec![]), (5, vec![])],
        vec![(SERVER_NAME, two)],
        vec![(SERVER_NAME, typed)],
        vec![(SERVER_NAME, trailed)],
        vec![(SERVER_NAME, vec![])],
        vec![name(b"")],
        vec![name(b"a.example.com.")],
        vec![name(b"a.example.com\0.b.example")],
        vec![name(b"192.0.2.1")],
        vec![name("ä.example".as_bytes())],
        vec![name(b"\xff")],
    ] {
        assert!(matches!(read(&extensions), Err(HelloError::Malformed(_))), "{extensions:?}");
    }
}

#[test]
fn encrypted_name_is_refused_even_with_a_plain_one() {
    for hidden in [ENCRYPTED_CLIENT_HELLO, ENCRYPTED_SERVER_NAME] {
        assert_eq!(read(&[name(b"a.example.com"), (hidden, vec![0])]), Err(HelloError::EncryptedName));
    }
}

#[test]
fn other_protocols_are_recognised_by_their_first_bytes() {
    for bytes in [&b"G"[..], b"SSH-2.0-x", b"\x16\x02", b"\x80\x2e\x01\x03\x01", b"\x17\x03\x03\x00\x01x"] {
        assert_eq!(ClientHello::read(bytes), Err(HelloError::NotTls), "{bytes:?}");
    }
}

#[test]
fn wrong_lengths_are_refused() {
    let good = message(&[name(b"a.example.com")]);
    let mut long = good.clone();
    long.push(0);
    let mut huge = good.clone();
    huge[1] = 1;
    let mut finished = good.clone();
    finished[0] = 20;
    for bytes in [records(&long, RECORD_MAX), records(&huge, RECORD_MAX), records(&finished, RECORD_MAX)] {
        assert!(matches!(ClientHello::read(&bytes), Err(HelloError::Malformed(_))));
    }
    // One byte per record would make the parser start over for each byte.
    assert!(matches!(ClientHello::read(&records(&good, 1)), Err(HelloError::Malformed(_))));
    assert!(matches!(ClientHello::read(&records(&good, good.len().div_ceil(RECORDS_MAX))), Ok(Some(_))));
    for header in [[HANDSHAKE, 3, 1, 0, 0], [HANDSHAKE, 3, 1, 0x40, 1]] {
        assert!(matches!(ClientHello::read(&header), Err(HelloError::Malformed(_))));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let framed = records(&[&[CLIENT_HELLO, 0, 0, u8::try_from(bytes.len() % 256).unwrap()], &bytes[..]].concat(), 64);
        for bytes in [&bytes, &framed] {
            if let Ok(Some((_, read))) = ClientHello::read(bytes) {
                prop_assert!(read <= bytes.len());
            }
        }
    }

    #[test]
    fn hello_parses_the_same_for_any_record_size(size in 2_usize..200, more in any::<[u8; 3]>()) {
        let mut bytes = records(&message(&[(43, vec![2, 3, 4]), name(b"a.example.com")]), size);
        let whole = bytes.len();
        for cut in 0..whole {
            prop_assert_eq!(ClientHello::read(&bytes[..cut]), Ok(None));
        }
        bytes.extend(more);
        let (hello, read) = ClientHello::read(&bytes).unwrap().unwrap();
        prop_assert_eq!(read, whole);
        prop_assert_eq!(hello.server_name, Some(Host::Name("a.example.com".into())));
    }

    #[test]
    fn one_changed_byte_never_changes_the_name_length(at in 0_usize..90, to in any::<u8>()) {
        let mut bytes = records(&message(&[name(b"a.example.com")]), RECORD_MAX);
        let place = at % bytes.len();
        bytes[place] = to;
        if let Ok(Some((hello, read))) = ClientHello::read(&bytes) {
            prop_assert_eq!(read, bytes.len());
            if let Some(Host::Name(found)) = hello.server_name {
                prop_assert_eq!(found.len(), "a.example.com".len());
            }
        }
    }
}
