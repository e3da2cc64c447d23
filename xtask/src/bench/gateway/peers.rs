//! Everything that answers in the bench: the vendor, the peers before it, and our gateway before it.

mod litellm;
mod nginx;
mod viv;

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::bench::{Folder, Service, free_address};

pub(super) const VENDOR: &str = "vendor itself";
pub(super) const NGINX: &str = "nginx";
pub(super) const NORMAL: &str = "viv, normal";
pub(super) const FULL: &str = "viv, full";
pub(super) const LITELLM: &str = "LiteLLM";
/// In the order in which they are shown.
pub(super) const NAMES: [&str; 5] = [VENDOR, NGINX, NORMAL, FULL, LITELLM];

/// Something that answers Messages calls.
pub(super) struct Target {
    pub(super) name: &'static str,
    pub(super) address: String,
    pub(super) token: String,
}

/// All of them, running; dropped, they end and leave nothing.
pub(super) struct Peers {
    targets: [Target; 5],
    gateway: Service,
    _others: [Service; 4],
    _folder: Folder,
}

impl Peers {
    /// Starts all of them.
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
            _others: [full_gateway, litellm, nginx, vendor],
            _folder: folder,
        })
    }

    pub(super) fn targets(&self) -> Vec<&Target> {
        self.targets.iter().collect()
    }

    /// The gateway that survives a crash of its process.
    pub(super) fn normal(&self) -> &Target {
        &self.targets[2]
    }

    /// What the kernel says of that gateway's memory.
    pub(super) fn gateway_kib(&self, field: &str) -> Result<u64> {
        self.gateway.kib(field)
    }
}
