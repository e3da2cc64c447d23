//! What a ClientHello is held to, by cases and by chance.

use proptest::prelude::*;

use super::*;

/// A hello with these extensions, as one message.
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

/// A message in records of at most `size` bytes.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|chunk| [&[HANDSHAKE, 3, 1][..], &vector16(chunk)].concat()).collect()
}

fn read(extensions: &[(u16, Vec<u8>)]) -> Result<Option<Host>, HelloError> {
    let bytes = records(&message(extensions), RECORD_MAX);
    ClientHello::read(&bytes).map(|read| read.expect("it is all there").0.server_name)
}

#[test]
fn the_name_is_found_and_its_absence_too() {
    assert_eq!(read(&[(10, vec![1]), name(b"A.Example.com")]), Ok(Some(Host::Name("a.example.com".into()))));
    assert_eq!(read(&[(10, vec![1])]), Ok(None));
}

#[test]
fn what_servers_might_read_in_different_ways_is_refused() {
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
fn a_hidden_name_is_refused_whatever_is_shown() {
    for hidden in [ENCRYPTED_CLIENT_HELLO, ENCRYPTED_SERVER_NAME] {
        assert_eq!(read(&[name(b"a.example.com"), (hidden, vec![0])]), Err(HelloError::Hidden));
    }
}

#[test]
fn what_is_not_tls_is_known_by_its_first_bytes() {
    for bytes in [&b"G"[..], b"SSH-2.0-x", b"\x16\x02", b"\x80\x2e\x01\x03\x01", b"\x17\x03\x03\x00\x01x"] {
        assert_eq!(ClientHello::read(bytes), Err(HelloError::NotTls), "{bytes:?}");
    }
}

#[test]
fn lengths_that_lie_are_refused() {
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
    // Whoever sends it byte by byte would have it read anew for each of them.
    assert!(matches!(ClientHello::read(&records(&good, 1)), Err(HelloError::Malformed(_))));
    assert!(matches!(ClientHello::read(&records(&good, good.len().div_ceil(RECORDS_MAX))), Ok(Some(_))));
    for header in [[HANDSHAKE, 3, 1, 0, 0], [HANDSHAKE, 3, 1, 0x40, 1]] {
        assert!(matches!(ClientHello::read(&header), Err(HelloError::Malformed(_))));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let framed = records(&[&[CLIENT_HELLO, 0, 0, u8::try_from(bytes.len() % 256).unwrap()], &bytes[..]].concat(), 64);
        for bytes in [&bytes, &framed] {
            if let Ok(Some((_, read))) = ClientHello::read(bytes) {
                prop_assert!(read <= bytes.len());
            }
        }
    }

    #[test]
    fn a_hello_reads_the_same_in_records_and_pieces_of_any_size(size in 2_usize..200, more in any::<[u8; 3]>()) {
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
    fn one_changed_byte_never_makes_another_allowed_name(at in 0_usize..90, to in any::<u8>()) {
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
