//! Start time and idle memory of servers.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::peer;
use crate::bench::free_address;
use crate::bench::{Folder, Sample, Service};
use crate::family;

const ROUNDS: usize = 20;
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval between two health checks; short compared with the measured time.
const PAUSE: Duration = Duration::from_micros(500);
/// Time for a new server to finish its background initialisation.
const SETTLED: Duration = Duration::from_secs(2);

/// Measures the time from program start to the first good answer, on a data directory that was used before.
pub(super) fn cold(viv: &Path, theirs: &Path, folder: &Folder) -> Result<Vec<Sample>> {
    let (ours_at, theirs_at) = (folder.fresh("ours")?, folder.fresh("theirs")?);
    let mut peer = || healthy(|address| peer::command(theirs, &theirs_at, address)).map(drop);
    let mut ours = || healthy(|address| Ok(command(viv, &ours_at, address))).map(drop);
    peer()?;
    ours()?;
    let name = format!("cold start: sandbox-agent {}", peer::VERSION);
    Sample::in_turns(ROUNDS, &mut [(&name, &mut peer), ("cold start: viv serve", &mut ours)])
}

/// Returns the memory of idle servers in KiB: ours with its child processes, and the peer.
pub(super) fn idle(viv: &Path, theirs: &Path, folder: &Folder) -> Result<(u64, u64)> {
    let (ours_at, theirs_at) = (folder.fresh("ours")?, folder.fresh("theirs")?);
    let ours = healthy(|address| Ok(command(viv, &ours_at, address)))?;
    let peer = healthy(|address| peer::command(theirs, &theirs_at, address))?;
    std::thread::sleep(SETTLED);
    Ok((family::memory_kib(ours.0.id())?, family::memory_kib(peer.0.id())?))
}

/// Returns the command for `viv serve` without tokens.
pub(crate) fn serve(viv: &Path, folder: &Path) -> Result<(Service, String)> {
    let service = Service::start(&mut command(viv, folder, "127.0.0.1:0"))?;
    let address = service.listening()?;
    Ok((service, address))
}

fn command(viv: &Path, folder: &Path, address: &str) -> Command {
    let mut command = Command::new(viv);
    command.args(["--json", "serve", "--no-auth"]).arg(format!("--listen={address}"));
    command.arg("--data-dir").arg(folder).env_remove("VIV_DATA_DIR");
    command
}

/// A server process that is killed when it is dropped.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        // The sandboxes of the server end with it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server at a free address, and waits for its first good answer.
fn healthy(command: impl FnOnce(&str) -> Result<Command>) -> Result<Started> {
    let address = free_address()?;
    let mut command = command(&address)?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = Started(command.spawn().with_context(|| format!("cannot start {command:?}"))?);
    let started = Instant::now();
    while !answers(&address) {
        ensure!(started.elapsed() < PATIENCE, "{command:?} does not answer");
        std::thread::sleep(PAUSE);
    }
    Ok(server)
}

fn answers(address: &str) -> bool {
    let asked = TcpStream::connect(address).and_then(|mut stream| {
        stream.set_read_timeout(Some(PATIENCE))?;
        let request = format!("GET /v1/health HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    });
    asked.is_ok_and(|answer| answer.starts_with(b"HTTP/1.1 200"))
}
