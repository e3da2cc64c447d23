//! The host's side of an attack: creates the sandbox, runs the program inside or as a control, and judges the result.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use policy::{BaseLayer, CeilingLayer, EffectivePolicy, PolicySource};
use sandbox::{ExecResult, ExecSpec, Sandbox, SandboxError, SandboxSpec};

use crate::attack::{Act, Attack, Control, Harm, Place, Verdict, Walls};
use crate::lead::Lead;
use crate::maker::Maker;
use crate::scene::Scene;

/// The path of the suite's program inside.
pub(crate) const PROGRAM: &str = "/run/attack/attack";
/// The prefix of a verdict on standard output.
pub(crate) const VERDICT: &str = "verdict: ";
/// The limits of every sandbox.
pub(crate) const MEMORY_BYTES: usize = 96 << 20;
pub(crate) const PIDS: usize = 48;
pub(crate) const DISK_BYTES: usize = 24 << 20;
pub(crate) const NOFILE: usize = 256;
pub(crate) const SOCKET_BYTES: usize = 8 << 20;

/// The shared environment of all attacks in one backend.
pub(crate) struct Stage {
    pub(crate) runtime: Arc<tokio::runtime::Runtime>,
    /// The backend.
    pub(crate) maker: Maker,
    /// The suite's own program.
    pub(crate) program: PathBuf,
    /// A random secret; an attack that prints it has succeeded.
    pub(crate) secret: String,
    /// The directory of all scenes.
    pub(crate) root: PathBuf,
}

impl Stage {
    /// Creates a new scene.
    pub(crate) fn scene(&self) -> Scene {
        Scene::build(&self.root, &self.program, &self.secret).expect("scene")
    }

    /// Creates a sandbox over `workspace`.
    pub(crate) fn sandbox(&self, walls: Walls, workspace: &Path) -> Result<Box<dyn Sandbox>, SandboxError> {
        self.runtime.block_on(self.make(walls, workspace))
    }

    /// Creates a sandbox over `workspace`, from async code.
    pub(crate) async fn make(&self, walls: Walls, workspace: &Path) -> Result<Box<dyn Sandbox>, SandboxError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let spec = SandboxSpec {
            id: format!("attack_{}", NEXT.fetch_add(1, Ordering::Relaxed)),
            workspace: Some(workspace.to_owned()),
            workspace_at: workspace.to_owned(),
            toolchains: sandbox::Toolchains::default(),
            mounts: vec![(self.program.clone(), PROGRAM.into())],
            files: vec![],
            policy: policy(walls),
        };
        self.maker.backend.create(spec).await
    }

    /// Runs a command of the suite's program inside to its end.
    pub(crate) fn exec(&self, sandbox: &dyn Sandbox, arguments: &[&str]) -> Result<ExecResult, SandboxError> {
        self.runtime.block_on(sandbox::run(sandbox, command(arguments), &mut |_, _| {}))
    }

    /// Destroys a sandbox with everything in it.
    pub(crate) fn destroy(&self, sandbox: &dyn Sandbox) {
        self.runtime.block_on(sandbox.destroy()).expect("destroy");
    }

    /// Runs an attack, in the sandbox or as the control.
    pub(crate) fn carry_out(&self, attack: &Attack, place: Place) -> Verdict {
        match (attack.act, place) {
            (Act::Scenario { run, .. }, place) => run(self, place),
            (Act::Proxied { control, .. }, place) => crate::proxy::carry_out(self, attack.name, control, place),
            (Act::Program { walls, harm, .. }, Place::Inside) => self.inside(attack.name, walls, harm),
            (Act::Program { control, harm, .. }, Place::Outside) => match control {
                Control::Plain | Control::Root | Control::RootWhere(_) => self.outside("__attack", attack.name, harm),
                Control::Namespaced => self.outside("__namespaced", attack.name, harm),
                Control::ProbeOnly(..) => self.outside("__probe", attack.name, harm),
                Control::Probe(..) => match self.outside("__attack", attack.name, harm) {
                    Verdict::Blocked(_) => self.outside("__probe", attack.name, harm),
                    succeeded @ Verdict::Succeeded(_) => succeeded,
                },
            },
        }
    }

    fn inside(&self, name: &str, walls: Walls, harm: Option<Harm>) -> Verdict {
        let scene = self.scene();
        let sandbox = match self.sandbox(walls, &scene.workspace()) {
            Ok(sandbox) => sandbox,
            // A limit that cannot be enforced prevents the start: there is no sandbox to attack.
            Err(SandboxError::Unavailable { missing, .. }) if walls == Walls::Strict => {
                return Verdict::Blocked(format!("never started: {missing}"));
            }
            Err(SandboxError::Unavailable { missing, .. }) if walls == Walls::Bound && self.maker.has_own_kernel() => {
                return Verdict::Blocked(format!("never started: {missing}"));
            }
            Err(error) => panic!("no sandbox: {error:?}"),
        };
        let lead = to_json(&scene.lead(Place::Inside));
        let result = self.exec(&*sandbox, &["__attack", name, &lead]).expect("run");
        assert!(!result.timed_out || self.maker.has_own_kernel(), "the attack did not end");
        self.destroy(&*sandbox);
        let output = [result.stdout, result.stderr].concat();
        let ended = self.maker.has_own_kernel() && result.exit.signal == Some(libc::SIGKILL);
        let verdict = match name {
            "proc_kill_init" if ended => Verdict::Succeeded("the sandbox ended with its init".into()),
            name if ended && name.contains("fork_bomb") => Verdict::Blocked("the sandbox ended as a whole".into()),
            name => verdict(name, &output, result.exit.code, result.exit.signal),
        };
        let layers = sandbox.layers();
        let harmed = harm.and_then(|look| look(&scene, layers.as_ref()));
        self.judge(verdict, &scene, &output, harmed)
    }

    fn outside(&self, mode: &str, name: &str, harm: Option<Harm>) -> Verdict {
        let scene = self.scene();
        let lead = to_json(&scene.lead(Place::Outside));
        let output = Command::new(&self.program)
            .args([mode, name, &lead])
            .current_dir(scene.workspace())
            .stdin(Stdio::null())
            .output()
            .expect("control");
        let text = [output.stdout, output.stderr].concat();
        let verdict = verdict(name, &text, output.status.code(), output.status.signal());
        let harmed = harm.and_then(|look| look(&scene, None));
        self.judge(verdict, &scene, &text, harmed)
    }

    /// Returns the verdict. Observations of the host override the attack's own result.
    fn judge(&self, verdict: Verdict, scene: &Scene, output: &[u8], harmed: Option<String>) -> Verdict {
        if String::from_utf8_lossy(output).contains(&self.secret) {
            return Verdict::Succeeded("the secret came out".into());
        }
        harmed.or_else(|| scene.harm()).map_or(verdict, Verdict::Succeeded)
    }
}

/// Returns a command of the suite's program inside.
pub(crate) fn command(arguments: &[&str]) -> ExecSpec {
    let command = std::iter::once(PROGRAM).chain(arguments.iter().copied()).map(str::to_owned).collect();
    ExecSpec { command, timeout: Some(Duration::from_secs(20)), ..ExecSpec::default() }
}

/// Returns the attacker's knowledge as an argument.
pub(crate) fn to_json(lead: &Lead) -> String {
    serde_json::to_string(lead).expect("a lead is JSON")
}

/// The beginnings of the names of attacks that take memory until the kernel kills them.
const OUT_OF_MEMORY: [&str; 3] = ["proc_memory", "proc_swap", "spend_"];

/// Returns the verdict of an attacking process, or how it ended.
pub(crate) fn verdict(name: &str, output: &[u8], code: Option<i32>, signal: Option<i32>) -> Verdict {
    let text = String::from_utf8_lossy(output);
    let said = text.lines().rev().find_map(|line| line.split_once(VERDICT)).map(|(_, json)| json);
    match (said, signal) {
        (Some(json), _) => serde_json::from_str(json).expect("a verdict is JSON"),
        (None, Some(libc::SIGSYS)) => Verdict::Blocked("killed by the system call filter".into()),
        (None, Some(libc::SIGKILL)) if OUT_OF_MEMORY.iter().any(|prefix| name.starts_with(prefix)) => {
            Verdict::Blocked("killed: out of memory".into())
        }
        _ => panic!("`{name}` gave no verdict (exit {code:?}, signal {signal:?}): {text}"),
    }
}

/// Returns the policy for `walls`: small limits and hidden files. `deny_write` has its default value.
pub(crate) fn policy(walls: Walls) -> Arc<EffectivePolicy> {
    let mode = if walls == Walls::Bound { "bind" } else { "overlay" };
    let cpus = if walls == Walls::Slow { "0.1" } else { "2.0" };
    let degrade = match walls {
        Walls::Usual | Walls::Bound | Walls::Named => "{cpus: none, memory: rlimit, pids: rlimit}",
        Walls::Strict | Walls::Slow => "{}",
    };
    let net = if walls == Walls::Named { "{enabled: true, dns: stub}" } else { "{}" };
    let text = format!(
        "version: 1\n\
         fs:\n  workspace: {mode}\n  read: [/usr, /lib, /lib64, /bin, /sbin, /etc/alternatives, /etc/ld.so.cache]\n  \
         deny_read: [\"**/.env\"]\n\
         proc: {{cpus: {cpus}, memory: {MEMORY_BYTES}, pids: {PIDS}, timeout: 1m, output: 1MiB, disk: {DISK_BYTES}, nofile: {NOFILE}, sockets: {SOCKET_BYTES}}}\n\
         degrade: {degrade}\nnet: {net}\n"
    );
    let base = BaseLayer::read(&PolicySource::new("attack", text)).expect("policy");
    Arc::new(policy::effective(&CeilingLayer::built_in().expect("ceiling"), &base, &[]))
}
