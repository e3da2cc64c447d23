//! Parsers for the values of `--allow-host` and `--allow-origin`.

/// Parses a value of the `Host` header, without a port.
pub(crate) fn host(text: &str) -> Result<String, String> {
    let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let is_address = bracketed.is_some_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok());
    let is_name = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    if is_address || is_name { Ok(text.to_owned()) } else { Err(HOST.to_owned()) }
}

/// Parses an origin as browsers send it: scheme, host and optional port.
pub(crate) fn origin(text: &str) -> Result<String, String> {
    let authority = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).ok_or(ORIGIN)?;
    let (name, port) = match authority.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (authority, None),
    };
    let fits = port.is_none_or(|port| port.parse::<u16>().is_ok()) && host(name).is_ok();
    if fits { Ok(text.to_owned()) } else { Err(ORIGIN.to_owned()) }
}

const HOST: &str = "write a host without a port: viv.example.com, 192.0.2.7 or [2001:db8::7]";
const ORIGIN: &str = "write an origin without a path: https://ui.example.com or http://localhost:5173";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_never_match_are_rejected() {
        for good in ["viv.example.com", "192.0.2.7", "[2001:db8::7]", "viv_1"] {
            assert_eq!(host(good).as_deref(), Ok(good));
        }
        for bad in ["", "viv.example.com:443", "http://x/y z", "[viv]", "2001:db8::7"] {
            assert!(host(bad).is_err(), "`{bad}` was accepted");
        }
        for good in ["https://ui.example.com", "http://localhost:5173", "http://[::1]:80", "http://[::1]"] {
            assert_eq!(origin(good).as_deref(), Ok(good));
        }
        for bad in ["https://ui.example.com/", "nonsense", "ui.example.com", "https://", "http://x:port", "ftp://x"] {
            assert!(origin(bad).is_err(), "`{bad}` was accepted");
        }
    }
}
