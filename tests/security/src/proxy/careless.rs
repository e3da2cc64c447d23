//! A proxy without rules and with lenient parsing: the control of every attack.
//!
//! It makes the known mistakes of proxies and of the C library. An attack that passes it would work without our rules.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

use super::internet::resolve;

/// Serves `listener` until the process is ended.
///
/// Requests to the host of the credential carry `secret`, and answers are forwarded unchanged.
pub(super) fn serve(listener: &TcpListener, secret: &str) {
    for stream in listener.incoming().flatten() {
        let secret = secret.to_owned();
        std::thread::spawn(move || serve_one(stream, &secret));
    }
}

fn serve_one(mut client: TcpStream, secret: &str) -> io::Result<()> {
    let mut said = BufReader::new(client.try_clone()?);
    if said.fill_buf()?.first() == Some(&5) {
        return serve_socks(client, &mut said);
    }
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if said.read_until(b'\n', &mut head)? == 0 {
            return Ok(());
        }
    }
    let line = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if method == "CONNECT" {
        let upstream = call(target, 443)?;
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
        return pipe(said, client, upstream);
    }
    // Parses a URL like a browser: a backslash is a slash, and text before an `@` is a user name.
    let rest = target.trim_start_matches("http://").replace('\\', "/");
    let mut upstream = call(rest.split('/').next().unwrap_or_default(), 80)?;
    if rest.starts_with("keyed.") {
        head.truncate(head.len() - 2);
        head.extend(format!("X-Key: {secret}\r\n\r\n").into_bytes());
    }
    upstream.write_all(&head)?;
    pipe(said, client, upstream)
}

fn serve_socks(mut client: TcpStream, said: &mut BufReader<TcpStream>) -> io::Result<()> {
    let mut methods = [0; 2];
    said.read_exact(&mut methods)?;
    said.read_exact(&mut vec![0; methods[1].into()])?;
    client.write_all(&[5, 0])?;
    let mut asked = [0; 4];
    said.read_exact(&mut asked)?;
    let host = socks_host(asked[3], said)?;
    let mut port = [0; 2];
    said.read_exact(&mut port)?;
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
    if asked[1] != 1 {
        return Ok(());
    }
    let upstream = call(&format!("{host}:{}", u16::from_be_bytes(port)), 443)?;
    pipe(BufReader::new(client.try_clone()?), client, upstream)
}

/// Parses an address of four or sixteen bytes, or a name.
fn socks_host(kind: u8, said: &mut impl Read) -> io::Result<String> {
    if kind == 1 {
        let mut address = [0; 4];
        said.read_exact(&mut address)?;
        return Ok(Ipv4Addr::from(address).to_string());
    }
    if kind == 4 {
        let mut address = [0; 16];
        said.read_exact(&mut address)?;
        return Ok(format!("[{}]", Ipv6Addr::from(address)));
    }
    let mut length = [0];
    said.read_exact(&mut length)?;
    let mut name = vec![0; length[0].into()];
    said.read_exact(&mut name)?;
    // A C string ends at its first NUL.
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

fn call(authority: &str, usual: u16) -> io::Result<TcpStream> {
    let authority = authority.rsplit('@').next().unwrap_or(authority).replace("%2e", ".");
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host.to_owned(), port.parse().unwrap_or(usual)),
        _ => (authority, usual),
    };
    let host = host.trim_matches(['[', ']']).trim_end_matches('.').to_owned();
    let addresses = host.parse().ok().or_else(|| numbers(&host)).map_or_else(
        || {
            // Resolved twice: once for the decision, once for the connection.
            resolve(&host);
            resolve(&host)
        },
        |address| vec![address],
    );
    let addresses: Vec<SocketAddr> = addresses.into_iter().map(|address| (address, port).into()).collect();
    TcpStream::connect(&addresses[..])
}

/// Parses an address like inet_aton(3): one to four numbers, also octal and hexadecimal.
fn numbers(text: &str) -> Option<IpAddr> {
    let number = |part: &str| match (part.strip_prefix("0x"), part.strip_prefix('0')) {
        (Some(digits), _) => u32::from_str_radix(digits, 16).ok(),
        (None, Some(digits)) if !digits.is_empty() => u32::from_str_radix(digits, 8).ok(),
        _ => part.parse().ok(),
    };
    let parts = text.split('.').map(number).collect::<Option<Vec<u32>>>()?;
    let (last, first) = parts.split_last()?;
    let mut address = *last;
    for (place, part) in first.iter().enumerate() {
        address |= part << (24 - 8 * place);
    }
    Some(Ipv4Addr::from(address).into())
}

/// Copies in both directions until the host closes.
fn pipe(mut said: BufReader<TcpStream>, mut client: TcpStream, mut upstream: TcpStream) -> io::Result<()> {
    let mut to = upstream.try_clone()?;
    std::thread::spawn(move || io::copy(&mut said, &mut to));
    io::copy(&mut upstream, &mut client)?;
    client.shutdown(std::net::Shutdown::Both)
}
