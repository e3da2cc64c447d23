//! The proxies of the egress bench.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::bench::{Folder, Service, free_address};

pub(super) const NONE: &str = "no proxy";
pub(super) const TINYPROXY: &str = "tinyproxy";
pub(super) const SQUID: &str = "squid";
pub(super) const VIV: &str = "viv";

/// All servers of the bench. Dropping it stops them and removes their files.
pub(super) struct Peers {
    targets: Vec<Value>,
    viv: Service,
    _others: [Service; 3],
    _folder: Folder,
}

impl Peers {
    /// Starts all servers.
    pub(super) fn start(load: &Path, bench_proxy: &Path) -> Result<Self> {
        let folder = Folder::make(&["egress"])?;
        let directory = folder.path().join("egress");
        let host = Service::start(limited(load).arg("host"))?;
        let address = host.first_line()?;
        let (tinyproxy, tinyproxy_address) = tinyproxy(&directory)?;
        let (squid, squid_address) = squid(&directory)?;
        let viv = Service::start(limited(bench_proxy).arg(&address).arg(directory.join("journal.jsonl")))?;
        let target =
            |name: &str, at: &str, connect: Option<&str>| json!({"name": name, "address": at, "connect": connect});
        let targets = vec![
            target(NONE, &address, None),
            target(TINYPROXY, &tinyproxy_address, Some(&address)),
            target(SQUID, &squid_address, Some(&address)),
            target(VIV, &viv.first_line()?, Some("bench.example.com:443")),
        ];
        Ok(Self { targets, viv, _others: [host, tinyproxy, squid], _folder: folder })
    }

    pub(super) fn targets(&self) -> &[Value] {
        &self.targets
    }

    /// Returns a memory figure of our proxy in KiB; see [`Service::kib`].
    pub(super) fn viv_kib(&self) -> Result<u64> {
        self.viv.kib("VmRSS")
    }
}

/// Returns a command with a descriptor limit that is high enough for all tunnels.
fn limited(program: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 4096; exec \"$0\" \"$@\""]).arg(program);
    command
}

/// Starts tinyproxy with a configuration for programs on the same machine.
fn tinyproxy(folder: &Path) -> Result<(Service, String)> {
    let address = free_address()?;
    let port = address.rsplit(':').next().unwrap_or_default();
    let config =
        format!("Port {port}\nListen 127.0.0.1\nTimeout 600\nMaxClients 1000\nAllow 127.0.0.1\nLogLevel Critical\n");
    let path = folder.join("tinyproxy.conf");
    std::fs::write(&path, config).context("cannot write tinyproxy.conf")?;
    let mut command = limited(Path::new("tinyproxy"));
    Ok((Service::start_at(command.arg("-d").arg("-c").arg(&path), &address)?, address))
}

/// Starts squid without cache and logs.
fn squid(folder: &Path) -> Result<(Service, String)> {
    let address = free_address()?;
    let config = format!(
        "http_port {address}\nhttp_access allow all\ncache deny all\ncache_mem 8 MB\naccess_log none\ncache_log /dev/null\n\
         cache_store_log none\npid_filename none\nnetdb_filename none\npinger_enable off\nmax_filedescriptors 4096\n\
         shutdown_lifetime 0 seconds\nvisible_hostname bench\ncoredump_dir /tmp\n"
    );
    let path = folder.join("squid.conf");
    std::fs::write(&path, config).context("cannot write squid.conf")?;
    let mut command = limited(Path::new("squid"));
    Ok((Service::start_at(command.arg("-N").arg("-f").arg(&path), &address)?, address))
}
