//! A `viv serve` for tests, on a free port.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::http::Client;
use crate::processes;
use testkit::{VivFixture, wait_for_exit};

/// A running server; it is killed with its children when dropped.
pub(crate) struct Server {
    child: Child,
    base: Option<String>,
}

impl Server {
    /// Starts a server and waits until it listens.
    #[track_caller]
    pub(crate) fn start(place: &VivFixture) -> Self {
        Self::listening(Self::launch(place))
    }

    /// Starts `viv` with arguments that make it listen, and waits until it does.
    #[track_caller]
    pub(crate) fn start_as(place: &VivFixture, arguments: &[&str]) -> Self {
        let mut command = place.command(&[&["--json"], arguments, &["--listen", "127.0.0.1:0"]].concat());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self::listening(Self { child, base: None })
    }

    /// Starts a server with a soft limit of `files` descriptors.
    #[track_caller]
    pub(crate) fn start_with_few_files(place: &VivFixture, arguments: &[&str], files: u32) -> Self {
        let viv = place.command(&[&["--json"], arguments, &["--listen", "127.0.0.1:0"]].concat());
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={files}:")).arg(viv.get_program()).args(viv.get_args());
        command.envs(viv.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(viv.get_current_dir().unwrap());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self::listening(Self { child, base: None })
    }

    #[track_caller]
    fn listening(mut server: Self) -> Self {
        let stdout = server.child.stdout.take().unwrap();
        let line = BufReader::new(stdout).lines().next();
        let Some(Ok(line)) = line else {
            let mut people = String::new();
            let _ = std::io::Read::read_to_string(&mut server.child.stderr.take().unwrap(), &mut people);
            panic!("the server did not start: {people}");
        };
        let told: Value = serde_json::from_str(&line).unwrap();
        server.base = Some(told["listening"].as_str().unwrap().to_owned());
        server
    }

    /// Starts a server that logs errors, and waits until it listens.
    #[track_caller]
    pub(crate) fn start_logging(place: &VivFixture) -> Self {
        let mut command =
            place.command(&["--json", "serve", "--listen", "127.0.0.1:0", "--no-auth", "--workspace-root=."]);
        let child = command.env("VIV_LOG", "error").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self::listening(Self { child, base: None })
    }

    /// Starts a server without waiting.
    pub(crate) fn launch(place: &VivFixture) -> Self {
        let mut command =
            place.command(&["--json", "serve", "--listen", "127.0.0.1:0", "--no-auth", "--workspace-root=."]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { child, base: None }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.base.as_ref().unwrap())
    }

    /// Returns its stderr until it ends.
    pub(crate) fn take_log(&mut self) -> std::process::ChildStderr {
        self.child.stderr.take().unwrap()
    }

    /// Returns its URL.
    pub(crate) fn base(&self) -> &str {
        self.base.as_ref().unwrap()
    }

    /// Returns its address without the scheme.
    pub(crate) fn address(&self) -> &str {
        self.base.as_ref().unwrap().strip_prefix("http://").unwrap()
    }

    /// Sends SIGKILL and checks that no process is left.
    #[track_caller]
    pub(crate) fn kill(mut self, data: &Path) {
        let family = processes::family(self.pid());
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        testkit::wait_until("the end of every process of a killed server", || {
            processes::alive(&family).is_empty() && processes::naming(data).is_empty()
        });
    }

    /// Returns its process for signals.
    pub(crate) fn process(&self) -> rustix::process::Pid {
        pid_of(&self.child)
    }

    /// Waits for the clean end of a server that got a signal.
    #[track_caller]
    pub(crate) fn ended(mut self) {
        assert_eq!(wait_for_exit(&mut self.child).code(), Some(0), "the server did not end well");
    }

    /// Sends SIGTERM and checks for a clean end.
    #[track_caller]
    pub(crate) fn stop(mut self) {
        rustix::process::kill_process(pid_of(&self.child), rustix::process::Signal::TERM).unwrap();
        assert_eq!(wait_for_exit(&mut self.child).code(), Some(0), "the server did not end well");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the process id of a child for system calls.
pub(crate) fn pid_of(child: &Child) -> rustix::process::Pid {
    rustix::process::Pid::from_child(child)
}
