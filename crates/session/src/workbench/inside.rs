//! What a command finds inside, and the files that go in and come out.

use std::collections::BTreeMap;
use std::path::Path;

use agents::{LaunchPlan, PlacedFile, ReadOnlyMount};
use sandbox::{ExecSpec, MODEL_URL, Sandbox};

use super::{ArtifactError, SessionCommand};
use crate::SessionError;
use crate::host::Host;
use crate::plan::Plan;

/// The longest artifact that is read.
const LARGEST: usize = 64 << 20;

/// What a command finds inside.
pub(super) struct Inside {
    pub(super) env: BTreeMap<String, String>,
    pub(super) mounts: Vec<ReadOnlyMount>,
    pub(super) files: Vec<PlacedFile>,
    /// Where the agent looks for skills.
    pub(super) skill_root: Option<&'static str>,
    /// The agent's name and the words that start its program.
    program: Option<(String, Vec<String>)>,
}

impl Inside {
    pub(super) fn of(host: &Host, plan: &Plan, token: &str) -> Result<Self, SessionError> {
        let Ok(enlisted) = plan.enlisted(&host.roster) else { return Ok(Self::without_agent(plan, token)) };
        let launch = enlisted.agent.plan(&plan.context(&enlisted, token.to_owned()))?;
        let words = words(enlisted.agent.package().map(|package| package.program), &launch);
        let mut env = launch.env;
        // A shell line finds a program of its own as well; one in JavaScript only by its first word.
        if let [program] = words.as_slice()
            && let Some(folder) = Path::new(program).parent()
        {
            let path = env.get("PATH").map(|path| format!(":{path}")).unwrap_or_default();
            env.insert("PATH".to_owned(), format!("{}{path}", folder.display()));
        }
        let program = Some((plan.agent.clone(), words));
        Ok(Self { env, mounts: launch.mounts, files: launch.files, skill_root: enlisted.agent.skill_root(), program })
    }

    /// The variables by which programs of every vendor find the gateway.
    fn without_agent(plan: &Plan, token: &str) -> Self {
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

    /// The default variables alone, without an agent and without the gateway's address.
    pub(super) fn bare() -> Self {
        let env = sandbox::default_environment();
        Self { env, mounts: Vec::new(), files: Vec::new(), skill_root: None, program: None }
    }

    /// What to execute for `task`.
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
            timeout: task.timeout,
            idle_timeout: task.idle_timeout,
            output_limit: Some(task.output_limit),
            terminal: task.terminal,
            ..ExecSpec::default()
        }
    }
}

/// The words of a launch up to the agent's program: the program, or Node and the program.
fn words(program: Option<&str>, launch: &LaunchPlan) -> Vec<String> {
    let is_program = |word: &String| program.is_some_and(|program| word.ends_with(program));
    let length = launch.argv.iter().position(is_program).map_or(1, |at| at + 1);
    launch.argv.iter().take(length).cloned().collect()
}

/// Reads a file from inside, by a program inside: a link is followed where it leads in there, never on the host.
pub(super) async fn read(sandbox: &dyn Sandbox, path: &str) -> Result<Vec<u8>, ArtifactError> {
    let read = carry(sandbox, &["cat", "--", path], None).await.map_err(|why| why.of(path))?;
    if read.len() > LARGEST {
        return Err(ArtifactError::TooLarge { path: path.to_owned(), limit: LARGEST });
    }
    Ok(read)
}

/// Writes a file inside, by a program inside.
pub(super) async fn write(sandbox: &dyn Sandbox, path: &str, content: Vec<u8>) -> Result<(), ArtifactError> {
    let command = ["sh", "-c", "cat > \"$0\"", path];
    carry(sandbox, &command, Some(content)).await.map(drop).map_err(|why| why.of(path))
}

/// Why bytes could not be carried.
enum Why {
    Refused(String),
    Sandbox(sandbox::SandboxError),
}

impl Why {
    fn of(self, path: &str) -> ArtifactError {
        let path = path.to_owned();
        match self {
            Self::Refused(why) => ArtifactError::Unreadable { path, why },
            Self::Sandbox(source) => ArtifactError::Sandbox { path, source },
        }
    }
}

async fn carry(sandbox: &dyn Sandbox, command: &[&str], stdin: Option<Vec<u8>>) -> Result<Vec<u8>, Why> {
    let spec = ExecSpec {
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        stdin,
        output_limit: Some(LARGEST + 1),
        ..ExecSpec::default()
    };
    let result = sandbox::run(sandbox, spec, &mut |_, _| ()).await.map_err(Why::Sandbox)?;
    match result.exit.code {
        Some(0) => Ok(result.stdout),
        _ => Err(Why::Refused(String::from_utf8_lossy(&result.stderr).trim().to_owned())),
    }
}
