//! Load for the bench of the egress proxy: a host that sends bytes on request, and tunnels to it.
//!
//! A tunnel begins with a ClientHello, because our proxy requires one. Eight bytes with the requested length follow.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The name of the host in the ClientHello.
const NAME: &str = "bench.example.com";
/// Size of the host's first message: enough for a proxy to rule out a hello retry request.
const GREETING: usize = 64;
const CHUNK: usize = 256 << 10;
/// Bytes through each of many tunnels.
const SMALL: u64 = 64 << 10;

/// Tunnels through several proxies in turns.
#[derive(Debug, Deserialize)]
pub(crate) struct Plan {
    targets: Vec<Target>,
    rounds: usize,
    /// Tunnels opened one after the other in a round.
    setups: usize,
    /// Bytes through one tunnel in a round.
    bulk_bytes: u64,
    /// Tunnels open at once in a round.
    parallel: usize,
}

#[derive(Debug, Clone, Deserialize)]
struct Target {
    name: String,
    /// The proxy, or the host itself.
    address: String,
    /// The host of the CONNECT request; none without a proxy.
    connect: Option<String>,
}

/// The measurements of one target, in microseconds.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Measured {
    setup: Vec<u64>,
    bulk: Vec<u64>,
    parallel: Vec<u64>,
}

impl Plan {
    /// Measures every target, round by round.
    pub(crate) async fn run_plan(&self) -> Result<BTreeMap<String, Measured>, String> {
        let mut measured: BTreeMap<String, Measured> = BTreeMap::new();
        for _ in 0..self.rounds {
            for target in &self.targets {
                let of_target = measured.entry(target.name.clone()).or_default();
                self.round(target, of_target).await.map_err(|error| format!("`{}`: {error}", target.name))?;
            }
        }
        Ok(measured)
    }

    async fn round(&self, target: &Target, measured: &mut Measured) -> io::Result<()> {
        for _ in 0..self.setups {
            let started = Instant::now();
            let tunnel = target.open().await?;
            measured.setup.push(micros(started.elapsed()));
            drop(tunnel);
        }
        if self.bulk_bytes > 0 {
            let mut tunnel = target.open().await?;
            let started = Instant::now();
            fetch(&mut tunnel, self.bulk_bytes).await?;
            measured.bulk.push(micros(started.elapsed()));
        }
        if self.parallel > 0 {
            let started = Instant::now();
            let mut tunnels = JoinSet::new();
            for _ in 0..self.parallel {
                let target = target.clone();
                tunnels.spawn_local(async move {
                    let mut tunnel = target.open().await?;
                    fetch(&mut tunnel, SMALL).await?;
                    Ok::<_, io::Error>(tunnel)
                });
            }
            // All tunnels stay open until the last one has received its bytes.
            let mut open = Vec::new();
            while let Some(joined) = tunnels.join_next().await {
                open.push(joined.map_err(io::Error::other)??);
            }
            measured.parallel.push(micros(started.elapsed()));
        }
        Ok(())
    }
}

impl Target {
    /// Opens a tunnel, and reads the host's first message.
    async fn open(&self) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        if let Some(host) = &self.connect {
            stream.write_all(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await?;
            read_head(&mut stream).await?;
        }
        stream.write_all(&hello()).await?;
        stream.read_exact(&mut [0; GREETING]).await?;
        Ok(stream)
    }
}

async fn read_head(stream: &mut TcpStream) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let accepted = head.split(|byte| *byte == b' ').nth(1) == Some(b"200");
    if accepted { Ok(()) } else { Err(io::Error::other(String::from_utf8_lossy(&head).into_owned())) }
}

async fn fetch(stream: &mut TcpStream, bytes: u64) -> io::Result<()> {
    stream.write_all(&bytes.to_be_bytes()).await?;
    let mut buffer = vec![0; CHUNK];
    let mut left = bytes;
    while left > 0 {
        match stream.read(&mut buffer).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => left = left.saturating_sub(count as u64),
        }
    }
    Ok(())
}

/// Returns a minimal ClientHello with the host's name.
fn hello() -> Vec<u8> {
    let vector =
        |content: &[u8]| [&u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes()[..], content].concat();
    let names = vector(&[&[0][..], &vector(NAME.as_bytes())].concat());
    let extensions = vector(&[&[0, 0][..], &vector(&names)].concat());
    let body = [&[3, 3][..], &[7; 32], &[0], &vector(&[0x13, 0x01]), &[1, 0], &extensions].concat();
    [&[22, 3, 1][..], &vector(&[&[1, 0][..], &vector(&body)].concat())].concat()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Prints its address, and serves until standard input ends.
pub(crate) async fn serve() -> Result<(), String> {
    let listener = crate::vendor::open().await.map_err(|error| error.to_string())?;
    let mut gone = crate::vendor::end_of_input();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted.map_err(|error| error.to_string())?;
                tokio::task::spawn_local(async move {
                    // Ignore clients that disconnect.
                    let _ = serve_connection(stream).await;
                });
            }
            _ = &mut gone => return Ok(()),
        }
    }
}

async fn serve_connection(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.read_exact(&mut vec![0; hello().len()]).await?;
    let mut greeting = [0; GREETING];
    greeting[..3].copy_from_slice(&[22, 3, 3]);
    stream.write_all(&greeting).await?;
    let bytes = vec![7; CHUNK];
    loop {
        let mut left = stream.read_u64().await?;
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            stream.write_all(&bytes[..count]).await?;
            left -= count as u64;
        }
    }
}
