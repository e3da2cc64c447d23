//! The environment of commands in a sandbox, and file transfer in and out.

use std::collections::BTreeMap;
use std::path::Path;

use agents::{LaunchPlan, PlacedFile, ReadOnlyMount};
use sandbox::{ExecSpec, MODEL_URL, Sandbox};

use super::{ArtifactError, SessionCommand};
use crate::SessionError;
use crate::lifecycle::{SessionHost, SessionPlan};

/// Largest artifact, in bytes.
const MAX_ARTIFACT_BYTES: usize = 64 << 20;

/// Variables, mounts, files and agent program that commands find in the sandbox.
pub(super) struct CommandEnvironment {
    pub(super) env: BTreeMap<String, String>,
    pub(super) mounts: Vec<ReadOnlyMount>,
    pub(super) files: Vec<PlacedFile>,
    /// The folder in which the agent looks for skills.
    pub(super) skill_root: Option<&'static str>,
    /// The agent's name, and the program with its first arguments.
    program: Option<(String, Vec<String>)>,
}

impl CommandEnvironment {
    pub(super) fn of(host: &SessionHost, plan: &SessionPlan, token: &str) -> Result<Self, SessionError> {
        let Ok(registered) = plan.registered_agent(&host.config.agents) else {
            return Ok(Self::without_agent(plan, token));
        };
        let launch = registered.agent.plan(&plan.launch_context(&registered, token.to_owned()))?;
        let words = program_words(registered.agent.package().map(|package| package.program), &launch);
        let mut env = launch.env;
        // Shell commands find a native program by PATH; a JavaScript program needs Node in front of it.
        if let [program] = words.as_slice()
            && let Some(folder) = Path::new(program).parent()
        {
            let path = env.get("PATH").map(|path| format!(":{path}")).unwrap_or_default();
            env.insert("PATH".to_owned(), format!("{}{path}", folder.display()));
        }
        let program = Some((plan.agent.clone(), words));
        Ok(Self { env, mounts: launch.mounts, files: launch.files, skill_root: registered.agent.skill_root(), program })
    }

    /// Returns an environment with the variables by which programs of all vendors find the gateway.
    fn without_agent(plan: &SessionPlan, token: &str) -> Self {
        let mut env = sandbox::default_environment();
        let openai = format!("{MODEL_URL}/v1");
        let known = [
            ("ANTHROPIC_BASE_URL", MODEL_URL),
            ("ANTHROPIC_AUTH_TOKEN", token),
            ("OPENAI_BASE_URL", &openai),
            ("OPENAI_API_KEY", token),
        ];
        env.extend(known.map(|(name, value)| (name.to_owned(), value.to_owned())));
        env.extend(plan.model.iter().map(|model| ("ANTHROPIC_MODEL".to_owned(), model.clone())));
        Self { env, mounts: Vec::new(), files: Vec::new(), skill_root: None, program: None }
    }

    /// Returns the default variables alone, without an agent and without the gateway's address.
    pub(super) fn bare() -> Self {
        let env = sandbox::default_environment();
        Self { env, mounts: Vec::new(), files: Vec::new(), skill_root: None, program: None }
    }

    /// Returns the specification to execute `task`.
    pub(super) fn exec(&self, task: SessionCommand) -> ExecSpec {
        let mut command = task.command;
        if let Some((name, words)) = &self.program
            && command.first() == Some(name)
        {
            command.splice(..1, words.iter().cloned());
        }
        let mut env = self.env.clone();
        env.extend(task.env);
        if task.terminal.is_some() {
            env.entry("TERM".to_owned()).or_insert_with(|| "xterm-256color".to_owned());
        }
        ExecSpec {
            command,
            env,
            workdir: task.workdir,
            timeout: task.timeout,
            idle_timeout: task.idle_timeout,
            output_limit: Some(task.output_limit),
            terminal: task.terminal,
            ..ExecSpec::default()
        }
    }
}

/// Returns the start of a command line up to the agent's program: the program, or Node and the program.
fn program_words(program: Option<&str>, launch: &LaunchPlan) -> Vec<String> {
    let is_program = |word: &String| program.is_some_and(|program| word.ends_with(program));
    let length = launch.argv.iter().position(is_program).map_or(1, |at| at + 1);
    launch.argv.iter().take(length).cloned().collect()
}

/// Reads a file with a program inside the sandbox, so that links are followed there and never on the host.
pub(super) async fn read(sandbox: &dyn Sandbox, path: &str) -> Result<Vec<u8>, ArtifactError> {
    let read = transfer(sandbox, &["cat", "--", path], None).await.map_err(|why| why.for_path(path))?;
    if read.len() > MAX_ARTIFACT_BYTES {
        return Err(ArtifactError::TooLarge { path: path.to_owned(), limit: MAX_ARTIFACT_BYTES });
    }
    Ok(read)
}

/// Writes a file with a program inside the sandbox.
pub(super) async fn write(sandbox: &dyn Sandbox, path: &str, content: Vec<u8>) -> Result<(), ArtifactError> {
    let command = ["sh", "-c", "cat > \"$0\"", path];
    transfer(sandbox, &command, Some(content)).await.map(drop).map_err(|why| why.for_path(path))
}

/// Why a transfer failed.
enum TransferError {
    Refused(String),
    Sandbox(sandbox::SandboxError),
}

impl TransferError {
    fn for_path(self, path: &str) -> ArtifactError {
        let path = path.to_owned();
        match self {
            Self::Refused(why) => ArtifactError::Unreadable { path, why },
            Self::Sandbox(source) => ArtifactError::Sandbox { path, source },
        }
    }
}

async fn transfer(sandbox: &dyn Sandbox, command: &[&str], stdin: Option<Vec<u8>>) -> Result<Vec<u8>, TransferError> {
    let spec = ExecSpec {
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        stdin,
        output_limit: Some(MAX_ARTIFACT_BYTES + 1),
        ..ExecSpec::default()
    };
    let result = sandbox::run(sandbox, spec, &mut |_, _| ()).await.map_err(TransferError::Sandbox)?;
    match result.exit.code {
        Some(0) => Ok(result.stdout),
        _ => Err(TransferError::Refused(String::from_utf8_lossy(&result.stderr).trim().to_owned())),
    }
}
