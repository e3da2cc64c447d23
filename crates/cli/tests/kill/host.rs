//! A data directory and a `viv gateway serve` on it that can be killed.

use std::process::{Child, Command, Stdio};

use serde_json::Value;
use testkit::VivFixture;

/// A data directory with one key.
pub(crate) struct GatewayFixture {
    fixture: VivFixture,
    key: String,
}

impl GatewayFixture {
    /// Returns a data directory with an upstream at `url` and the given ledger durability.
    pub(crate) fn new(url: &str, durability: &str) -> Self {
        let fixture = VivFixture::new(env!("CARGO_BIN_EXE_viv"));
        let config = format!(
            "[model]\nupstream = \"stub\"\n[upstreams.stub]\nkind = \"litellm\"\nbase_url = \"{url}\"\n\
             [prices.m]\ninput = 3.0\noutput = 15.0\n[ledger]\ndurability = \"{durability}\"\n"
        );
        fixture.configure(&config);
        let mut fixture = Self { fixture, key: String::new() };
        let output = fixture.viv(&["keys", "create", "--account", "acme"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let made: Value = serde_json::from_slice(&output.stdout).unwrap();
        made["key"].as_str().unwrap().clone_into(&mut fixture.key);
        fixture
    }

    pub(crate) fn data_dir(&self) -> std::path::PathBuf {
        self.fixture.data_dir()
    }

    fn viv(&self, arguments: &[&str]) -> Command {
        self.fixture.command(&[&["--json"], arguments].concat())
    }

    /// Starts the gateway; the ledger is recovered when this returns.
    pub(crate) fn serve(&self) -> Host {
        let mut command = self.viv(&["gateway", "serve", "--listen", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let address = testkit::listening_address(&mut child).parse().unwrap();
        Host { address, key: self.key.clone(), child }
    }
}

/// A running gateway; it is killed when dropped.
pub(crate) struct Host {
    pub(crate) address: std::net::SocketAddr,
    pub(crate) key: String,
    child: Child,
}

impl Host {
    /// Sends SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops the gateway and waits for its end.
    pub(crate) fn leave(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Usually it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
