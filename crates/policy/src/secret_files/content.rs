//! Confirmation of a secret file by its first bytes.

/// The content that makes a candidate a secret file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretContent {
    /// A private key or a key store, in any of the usual formats.
    PrivateKey,
    /// A password or token with a value. A reference to a variable, as in `${NPM_TOKEN}`, is not a value.
    Credentials,
}

/// Texts that only private keys contain.
const KEY_TEXTS: [&[u8]; 7] = [
    b"openssh-key-v1",
    b"AGE-SECRET-KEY-1",
    b"AGE-PLUGIN-",
    b"-----BEGIN PGP PRIVATE KEY BLOCK-----",
    b"PuTTY-User-Key-File-",
    b"SSH PRIVATE KEY FILE FORMAT",
    b"encrypted secret key",
];
/// First bytes of a Java key store, a JCEKS key store, a KeePass database, and a PGP secret key packet.
const KEY_MAGIC: [&[u8]; 6] =
    [b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce", b"\x03\xd9\xa2\x9a", b"\x94", b"\x95", b"\xc5"];
/// Settings whose value is a credential, in lower case.
const CREDENTIAL_SETTINGS: [&str; 11] = [
    "_authtoken",
    "_auth",
    "_password",
    "npmauthtoken",
    "npmauthident",
    "password",
    "passwd",
    "token",
    "\"auth\"",
    "identitytoken",
    "client-key-data",
];

impl SecretContent {
    /// Returns whether a file that begins with `head` contains a secret of this kind.
    pub fn is_in(self, head: &[u8]) -> bool {
        match self {
            Self::PrivateKey => has_private_key(head),
            Self::Credentials => has_credentials(head) || has_private_key(head),
        }
    }
}

fn has_private_key(head: &[u8]) -> bool {
    has_pem_key(head)
        || is_der_key(head)
        || KEY_TEXTS.iter().any(|text| contains(head, text))
        || KEY_MAGIC.iter().any(|magic| head.starts_with(magic))
}

/// Returns whether a line `-----BEGIN … PRIVATE KEY-----` is in `head`. A bundle may have certificates before it.
fn has_pem_key(head: &[u8]) -> bool {
    const BEGIN: &[u8] = b"-----BEGIN ";
    let label = |start: usize| {
        let rest = &head[start + BEGIN.len()..];
        &rest[..rest.len().min(64)]
    };
    let starts = head.windows(BEGIN.len()).enumerate().filter(|(_, window)| *window == BEGIN).map(|(start, _)| start);
    starts.into_iter().any(|start| {
        let label = label(start);
        let end = contains_at(label, b"-----").unwrap_or(label.len());
        contains(&label[..end], b"PRIVATE KEY")
    })
}

/// Returns whether `head` is a private key or PKCS #12 store in DER: a sequence that begins with a small version number.
/// A certificate begins with another sequence.
fn is_der_key(head: &[u8]) -> bool {
    let body = match head {
        [0x30, 0x82, _, _, body @ ..] | [0x30, 0x81, _, body @ ..] | [0x30, 0x83, _, _, _, body @ ..] => body,
        [0x30, length, body @ ..] if *length < 0x80 => body,
        _ => return false,
    };
    matches!(body, [0x02, 0x01, 0 | 1 | 3, ..])
}

fn has_credentials(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']));
    let mut lines = lines.peekable();
    while let Some(line) = lines.next() {
        if url_has_credentials(line) || CREDENTIAL_SETTINGS.iter().any(|name| sets(line, name, lines.peek().copied())) {
            return true;
        }
    }
    false
}

/// Returns whether `line` sets `name` to a value. In a `.netrc` the value may be on the `next` line.
fn sets(line: &str, name: &str, next: Option<&str>) -> bool {
    line.match_indices(name).any(|(start, _)| {
        let rest = line[start + name.len()..].trim_start_matches(['"', '\'']);
        let Some(value) = rest.trim_start().strip_prefix(['=', ':']).or_else(|| rest.strip_prefix([' ', '\t'])) else {
            return rest.is_empty() && next.is_some_and(is_value);
        };
        is_value(value.trim_start_matches([' ', '\t', '"', '\'', '=']))
    })
}

fn is_value(text: &str) -> bool {
    !text.is_empty() && !text.starts_with(['$', '<', '{', '"', '\''])
}

/// Returns whether a URL in `line` contains a password, or a token in place of a user name.
pub fn url_has_credentials(line: &str) -> bool {
    line.match_indices("://").any(|(start, _)| {
        let authority = line[start + 3..].split(['/', '?', '#', ' ', '"', '\'']).next().unwrap_or_default();
        let is_http = line[..start].ends_with("http") || line[..start].ends_with("https");
        let user = authority.rsplit_once('@').map(|(user, _)| user);
        user.is_some_and(|user| is_value(user) && (is_http || user.contains(':')))
    })
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    contains_at(bytes, part).is_some()
}

fn contains_at(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::SecretContent::{Credentials, PrivateKey};

    #[test]
    fn private_keys_of_all_formats_are_recognised() {
        let keys: [&[u8]; 10] = [
            b"-----BEGIN PRIVATE KEY-----\nMIIE",
            b"-----BEGIN CERTIFICATE-----\nMIID\n-----END CERTIFICATE-----\n-----BEGIN RSA PRIVATE KEY-----\n",
            b"-----BEGIN OPENSSH PRIVATE KEY-----\n",
            b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n",
            b"{\"private_key\": \"-----BEGIN PRIVATE KEY-----\\nMIIE\"}",
            b"# created: 2026\nAGE-SECRET-KEY-1QQQ",
            b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n",
            b"PuTTY-User-Key-File-3: ssh-ed25519",
            b"\x30\x82\x09\x29\x02\x01\x00\x02",
            b"\x30\x82\x0a\x00\x02\x01\x03\x30",
        ];
        for key in keys {
            assert!(PrivateKey.is_in(key), "{}", String::from_utf8_lossy(key));
        }
        let others: [&[u8]; 7] = [
            b"",
            b"-----BEGIN CERTIFICATE-----\nMIID",
            b"-----BEGIN PUBLIC KEY-----\nMIIB",
            b"ssh-ed25519 AAAA",
            b"def id_map(): pass\n",
            b"\x30\x82\x05\x00\x30\x82\x03",
            b"-----BEGIN CERTIFICATE-----\nPRIVATE KEY",
        ];
        for other in others {
            assert!(!PrivateKey.is_in(other), "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn only_credentials_with_a_value_count() {
        for secret in [
            "//registry.example.com/:_authToken=npm_abc\n",
            "[pypi]\nusername = me\npassword = pypi-AgE\n",
            "machine example.com login me password hunter2\n",
            "machine example.com\nlogin me\npassword\nhunter2\n",
            "https://me:token@example.com\n",
            "https://ghp_token@example.com\n",
            "{\"auths\": {\"example.com\": {\"auth\": \"bWU6cHc=\"}}}",
            "npmAuthToken: \"abc\"\n",
        ] {
            assert!(Credentials.is_in(secret.as_bytes()), "{secret}");
        }
        for plain in [
            "registry=https://registry.example.com/\nalways-auth=true\n",
            "//registry.example.com/:_authToken=${NPM_TOKEN}\n",
            "# password = example\n",
            "[distutils]\nindex-servers = pypi\n",
            "save-exact=true\n",
            "git+ssh://git@example.com/a.git\n",
            "{\"auths\": {\"example.com\": {}}}",
            "npmAuthToken: \"${NPM_TOKEN}\"\n",
        ] {
            assert!(!Credentials.is_in(plain.as_bytes()), "{plain}");
        }
    }
}
