//! Handmade ClientHello messages, including malformed ones.

/// Extensions that name or hide a server.
const SERVER_NAME: u16 = 0;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// Returns the first record of a TLS client with any number of `names`.
pub(super) fn hello(names: &[&str]) -> Vec<u8> {
    record(&message(&extensions(names)))
}

/// Returns a hello with one name in clear text and another hidden.
pub(super) fn hidden(name: &str, inner: &str) -> Vec<u8> {
    let mut all = extensions(&[name]);
    all.extend(extension(ENCRYPTED_CLIENT_HELLO, inner.as_bytes()));
    record(&message(&all))
}

/// Returns a hello whose name is split over two records.
pub(super) fn in_two_records(name: &str) -> Vec<u8> {
    let message = message(&extensions(&[name]));
    let middle = message.len() - name.len() / 2;
    [record(&message[..middle]), record(&message[middle..])].concat()
}

/// Returns a hello in records of one byte each.
pub(super) fn in_crumbs(name: &str) -> Vec<u8> {
    message(&extensions(&[name])).chunks(1).flat_map(record).collect()
}

/// Returns a hello with `name` in another name type than host name.
pub(super) fn as_kind(kind: u8, name: &str) -> Vec<u8> {
    let list = [&[kind][..], &vector16(name.as_bytes())].concat();
    record(&message(&extension(SERVER_NAME, &vector16(&list))))
}

fn extensions(names: &[&str]) -> Vec<u8> {
    if names.is_empty() {
        return Vec::new();
    }
    let list: Vec<u8> = names.iter().flat_map(|name| [&[0][..], &vector16(name.as_bytes())].concat()).collect();
    extension(SERVER_NAME, &vector16(&list))
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector16(content)].concat()
}

fn message(extensions: &[u8]) -> Vec<u8> {
    let suites = vector16(&[0x13, 0x01, 0xc0, 0x2f]);
    let body = [&[3, 3][..], &[7; 32], &[0], &suites, &[1, 0], &vector16(extensions)].concat();
    [&[1, 0][..], &vector16(&body)].concat()
}

fn record(content: &[u8]) -> Vec<u8> {
    [&[22, 3, 1][..], &vector16(content)].concat()
}

fn vector16(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes()[..], content].concat()
}
