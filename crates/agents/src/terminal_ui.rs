//! Launch plans for the agents' own terminal UIs.
//!
//! Each plan starts from the agent's plan for a dialogue: the same program, gateway, token and saved home. It replaces the
//! arguments, and places files that answer the first-run screens, so that the first screen is the prompt. Agents
//! rewrite these files, so they are writable copies in the home of the sandbox.
//!
//! Not here: the pseudo-terminal (`sandbox`), and its viewers (`session`).

use base::HOME;
use serde_json::{Value, json};

use crate::{
    Agent, AgentError, Dialogue, DialogueOutput, LaunchContext, LaunchPlan, PermissionMode, PlacedFile, Prompt,
};

/// The start of a terminal UI.
#[derive(Debug, Clone, Copy, Default)]
pub struct TerminalUiStart<'a> {
    /// The prompt with which the UI opens.
    pub prompt: Option<&'a str>,
    /// Whether to continue the agent's last conversation of this sandbox home.
    pub resume: bool,
}

/// Returns the launch plan for the terminal UI of `agent`. Fails if the agent has none, or does not support the mode.
pub fn terminal_ui_plan(
    agent: &dyn Agent,
    context: &LaunchContext,
    start: TerminalUiStart<'_>,
) -> Result<LaunchPlan, AgentError> {
    let mut plan = agent.plan(context)?;
    let mode = PermissionMode::of(context);
    let arguments = match agent.id() {
        "claude" => claude(&mut plan, context, mode, start),
        "codex" => codex(&mut plan, context, mode, start)?,
        "gemini" => gemini(&mut plan, context, mode, start)?,
        "opencode" => opencode(&mut plan, mode, start),
        "qwen" => qwen(&mut plan, context, mode, start),
        "copilot" => copilot(&mut plan, context, mode, start)?,
        "pi" => pi(context, start),
        _ => return Err(AgentError::NoTerminalUi(agent.id())),
    };
    // Node, if the agent needs it, and the program itself.
    let program = if agent.package().is_some_and(|package| package.needs_node) { 2 } else { 1 };
    plan.argv.truncate(program);
    plan.argv.extend(arguments);
    // Every terminal understands these; the terminal description of the user's terminal is not in the sandbox.
    plan.env
        .extend([("TERM", "xterm-256color"), ("COLORTERM", "truecolor")].map(|(n, v)| (n.to_owned(), v.to_owned())));
    Ok(plan)
}

/// Returns whether the terminal UI of an agent undoes typing on Ctrl-Z. All other agents suspend themselves, which freezes
/// them without a shell above them.
pub fn undoes_with_ctrl_z(agent: &str) -> bool {
    agent == "qwen"
}

fn claude(
    plan: &mut LaunchPlan,
    context: &LaunchContext,
    mode: PermissionMode,
    start: TerminalUiStart<'_>,
) -> Vec<String> {
    // These fit a dialogue with a program. A person expects the behaviour that the vendor chose.
    for variable in ["CLAUDE_CODE_ENABLE_TASKS", "MCP_CONNECTION_NONBLOCKING"] {
        plan.env.remove(variable);
    }
    plan.env.remove("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS");
    plan.env.insert("CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL".to_owned(), "1".to_owned());
    let trusted = json!({ plan.workdir.as_str(): { "hasTrustDialogAccepted": true } });
    let state = json!({ "hasCompletedOnboarding": true, "projects": trusted });
    // The state is beside the settings, because `CLAUDE_CONFIG_DIR` is set.
    place(plan, ".claude/.claude.json", &state);
    let mut settings = json!({ "skipDangerousModePermissionPrompt": true });
    if mode == PermissionMode::Plan {
        settings["useAutoModeDuringPlan"] = json!(false);
    }
    place(plan, ".claude/settings.json", &settings);
    let native = match mode {
        PermissionMode::Bypass => "bypassPermissions",
        other => other.as_str(),
    };
    let mut arguments = vec!["--permission-mode", native];
    if let Some(model) = &context.model {
        arguments.extend(["--model", model]);
    }
    let servers = context.mcp.to_standard();
    arguments.extend(servers.iter().flat_map(|servers| ["--mcp-config", servers]));
    arguments.push("--strict-mcp-config");
    if start.resume {
        arguments.push("--continue");
    }
    with_prompt(owned(&arguments), &["--"], start)
}

fn codex(
    plan: &mut LaunchPlan,
    context: &LaunchContext,
    mode: PermissionMode,
    start: TerminalUiStart<'_>,
) -> Result<Vec<String>, AgentError> {
    // Codex' own sandbox cannot be nested in this one, so its modes are approval policies. This version has only two.
    let approval = match mode {
        PermissionMode::Default | PermissionMode::AcceptEdits => "on-request",
        PermissionMode::Bypass => "never",
        PermissionMode::Plan => return Err(unsupported("codex", mode)),
    };
    let workspace = toml_string(&plan.workdir);
    let settings = format!(
        "check_for_update_on_startup = false\n\
         [features]\ndaemon_auto_start = false\n\
         [projects.{workspace}]\ntrust_level = \"trusted\"\n\
         [notice.model_migrations]\n\"gpt-5.5\" = \"gpt-6-sol\"\n\
         [tui]\nshow_tooltips = false\nscreen_reader_detection_done = true\n"
    );
    place_text(plan, ".codex/config.toml", settings);
    // The plan's arguments after the command `app-server` are settings, which the terminal UI takes as well.
    let shared: Vec<String> = plan.argv.iter().skip(2).cloned().collect();
    let mut arguments = if start.resume { owned(&["resume", "--last"]) } else { Vec::new() };
    // Otherwise Codex leaves two processes behind, and copies itself into its home.
    arguments.extend(owned(&["--no-daemon", "-s", "danger-full-access", "-a", approval]));
    arguments.extend(shared);
    if let Some(model) = &context.model {
        arguments.extend(owned(&["-m", model]));
    }
    Ok(with_prompt(arguments, &["--"], start))
}

fn gemini(
    plan: &mut LaunchPlan,
    context: &LaunchContext,
    mode: PermissionMode,
    start: TerminalUiStart<'_>,
) -> Result<Vec<String>, AgentError> {
    update(plan, ".gemini/settings.json", |settings| {
        settings["general"]["enableAutoUpdateNotification"] = json!(false);
        // Without the alternate buffer, a resize leaves duplicated lines.
        settings["ui"] = json!({ "useAlternateBuffer": true, "hideTips": true, "hideBanner": true });
    });
    let native = match mode {
        PermissionMode::Default => "default",
        PermissionMode::AcceptEdits => "auto_edit",
        PermissionMode::Bypass => "yolo",
        PermissionMode::Plan => return Err(unsupported("gemini", mode)),
    };
    // A model is always in the plan's arguments: Gemini would otherwise choose one for each request.
    let model = context.model.clone().or_else(|| plan.argv.last().cloned()).unwrap_or_default();
    let mut arguments = owned(&["-m", &model, "--approval-mode", native]);
    if start.resume {
        arguments.extend(owned(&["--resume", "latest"]));
    }
    Ok(with_prompt(arguments, &["-i"], start))
}

fn opencode(plan: &mut LaunchPlan, mode: PermissionMode, start: TerminalUiStart<'_>) -> Vec<String> {
    let edits = |value: &'static str| json!({ "bash": "ask", "edit": value }).to_string();
    match mode {
        PermissionMode::Bypass => drop(plan.env.remove("OPENCODE_PERMISSION")),
        PermissionMode::AcceptEdits => drop(plan.env.insert("OPENCODE_PERMISSION".to_owned(), edits("allow"))),
        PermissionMode::Plan | PermissionMode::Default => {}
    }
    place(plan, ".local/config/viv/tui.json", &json!({ "keybinds": { "terminal_suspend": "none" } }));
    plan.env.insert("OPENCODE_TUI_CONFIG".to_owned(), format!("{HOME}/.local/config/viv/tui.json"));
    let mut arguments = Vec::new();
    if mode == PermissionMode::Plan {
        arguments.extend(owned(&["--agent", "plan"]));
    }
    if start.resume {
        arguments.push("-c".to_owned());
    }
    with_prompt(arguments, &["--prompt"], start)
}

fn qwen(
    plan: &mut LaunchPlan,
    context: &LaunchContext,
    mode: PermissionMode,
    start: TerminalUiStart<'_>,
) -> Vec<String> {
    update(plan, ".qwen/settings.json", |settings| {
        settings["security"] = json!({ "auth": { "selectedType": "openai" } });
    });
    let native = match mode {
        PermissionMode::Default => "default",
        PermissionMode::Plan => "plan",
        PermissionMode::AcceptEdits => "auto-edit",
        PermissionMode::Bypass => "yolo",
    };
    let mut arguments = owned(&["--approval-mode", native]);
    let servers = context.mcp.to_standard();
    arguments.extend(servers.iter().flat_map(|servers| owned(&["--mcp-config", servers])));
    if start.resume {
        arguments.push("--continue".to_owned());
    }
    with_prompt(arguments, &["-i"], start)
}

fn copilot(
    plan: &mut LaunchPlan,
    context: &LaunchContext,
    mode: PermissionMode,
    start: TerminalUiStart<'_>,
) -> Result<Vec<String>, AgentError> {
    let trusted = json!({ "trustedFolders": [plan.workdir] });
    place(plan, ".copilot/config.json", &trusted);
    let mut arguments = owned(&["--disable-builtin-mcps"]);
    let servers = context.mcp.for_copilot();
    arguments.extend(servers.iter().flat_map(|servers| owned(&["--additional-mcp-config", servers])));
    match mode {
        PermissionMode::Default => {}
        PermissionMode::Bypass => arguments.push("--yolo".to_owned()),
        PermissionMode::AcceptEdits => arguments.extend(owned(&["--allow-tool", "write"])),
        PermissionMode::Plan => return Err(unsupported("copilot", mode)),
    }
    if start.resume {
        arguments.push("--continue".to_owned());
    }
    Ok(with_prompt(arguments, &["-i"], start))
}

fn pi(context: &LaunchContext, start: TerminalUiStart<'_>) -> Vec<String> {
    let model = context.model.as_deref().unwrap_or(crate::pi::DEFAULT_MODEL);
    let mut arguments = owned(&["--provider", "viv", "--model", model]);
    if start.resume {
        arguments.push("-c".to_owned());
    }
    with_prompt(arguments, &[], start)
}

fn unsupported(agent: &'static str, mode: PermissionMode) -> AgentError {
    AgentError::ModeNotSupported { agent, mode: mode.as_str().to_owned() }
}

/// Adds the prompt after `flags`. A prompt that begins with a dash gets a space, so that no agent reads it as an option.
fn with_prompt(mut arguments: Vec<String>, flags: &[&str], start: TerminalUiStart<'_>) -> Vec<String> {
    if let Some(prompt) = start.prompt {
        arguments.extend(owned(flags));
        arguments.push(if prompt.starts_with('-') { format!(" {prompt}") } else { prompt.to_owned() });
    }
    arguments
}

fn owned(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|argument| (*argument).to_owned()).collect()
}

fn place(plan: &mut LaunchPlan, path: &str, content: &Value) {
    place_text(plan, path, content.to_string());
}

fn place_text(plan: &mut LaunchPlan, path: &str, content: String) {
    let path = format!("{HOME}/{path}");
    plan.files.retain(|file| file.path != path);
    plan.files.push(PlacedFile { path, content });
}

/// Changes a JSON file of the plan.
fn update(plan: &mut LaunchPlan, path: &str, change: impl FnOnce(&mut Value)) {
    let place = format!("{HOME}/{path}");
    let Some(file) = plan.files.iter_mut().find(|file| file.path == place) else { return };
    if let Ok(mut content) = serde_json::from_str(&file.content) {
        change(&mut content);
        file.content = content.to_string();
    }
}

/// Returns a TOML string. JSON strings are TOML strings, except that TOML also escapes DEL.
fn toml_string(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007F")
}

/// The dialogue of an agent that shows its terminal UI: none. People read the screen, and the host reads nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoDialogue;

impl Dialogue for NoDialogue {
    fn open(&mut self) -> Vec<DialogueOutput> {
        Vec::new()
    }

    fn send_prompt(&mut self, _: &Prompt) -> Vec<DialogueOutput> {
        Vec::new()
    }

    fn read_line(&mut self, _: &[u8]) -> Vec<DialogueOutput> {
        Vec::new()
    }

    fn answer_permission(&mut self, _: &protocol::PermissionId, _: protocol::PermissionReply) -> Vec<DialogueOutput> {
        Vec::new()
    }

    fn answer_question(&mut self, _: &protocol::QuestionId, _: Option<&[Vec<String>]>) -> Vec<DialogueOutput> {
        Vec::new()
    }

    fn interrupt(&mut self) -> Vec<DialogueOutput> {
        Vec::new()
    }
}
