//! The servers of the gateway bench: the vendor stub, and the proxies in front of it.

mod litellm;
mod nginx;
mod viv;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::bench::{Folder, Service, free_address};

pub(super) const VENDOR: &str = "vendor itself";
pub(super) const NGINX: &str = "nginx";
pub(super) const NORMAL: &str = "viv, normal";
pub(super) const FULL: &str = "viv, full";
pub(super) const LITELLM: &str = "LiteLLM";
/// All targets, in the order of the report.
pub(super) const NAMES: [&str; 5] = [VENDOR, NGINX, NORMAL, FULL, LITELLM];

/// A server that answers calls of the Messages API.
pub(super) struct Target {
    pub(super) name: &'static str,
    pub(super) address: String,
    pub(super) token: String,
}

/// All servers of the bench. Dropping it stops them and removes their files.
pub(super) struct Peers {
    targets: [Target; 5],
    gateway: Service,
    nginx: Service,
    _others: [Service; 3],
    _folder: Folder,
}

impl Peers {
    /// Starts all servers.
    pub(super) fn start(viv: &Path, load: &Path) -> Result<Self> {
        let folder = Folder::make(&["nginx", "normal", "full", "litellm"])?;
        let vendor = Service::start(Command::new(load).arg("vendor"))?;
        let address = vendor.first_line()?;
        let (nginx, nginx_address) = nginx::start(&folder.path().join("nginx"), &address)?;
        let (gateway, normal) = viv::start(viv, &folder.path().join("normal"), NORMAL, "normal", &address)?;
        let (full_gateway, full) = viv::start(viv, &folder.path().join("full"), FULL, "full", &address)?;
        let (litellm, litellm_address) = litellm::start(&folder.path().join("litellm"), &address)?;
        let open = |name, address| Target { name, address, token: "none".to_owned() };
        Ok(Self {
            targets: [
                open(VENDOR, address.trim().to_owned()),
                open(NGINX, nginx_address),
                normal,
                full,
                Target { name: LITELLM, address: litellm_address, token: litellm::KEY.to_owned() },
            ],
            gateway,
            nginx,
            _others: [full_gateway, litellm, vendor],
            _folder: folder,
        })
    }

    /// Returns every target, the vendor first.
    pub(super) fn targets(&self) -> Vec<&Target> {
        self.targets.iter().collect()
    }

    /// Returns the gateway with `durability = "normal"`.
    pub(super) fn normal(&self) -> &Target {
        &self.targets[2]
    }

    /// Returns a memory figure of that gateway in KiB; see [`Service::kib`].
    pub(super) fn gateway_kib(&self, field: &str) -> Result<u64> {
        self.gateway.kib(field)
    }

    /// Returns the processor time used so far by that gateway and by nginx.
    pub(super) fn processor_times(&self) -> Result<(Duration, Duration)> {
        Ok((self.gateway.processor_time()?, self.nginx.processor_time()?))
    }
}
