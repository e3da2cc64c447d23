//! The agents to test, and the names of their tools.

use std::path::PathBuf;

use agents::LaunchContext;
use serde_json::{Value, json};
use session::AgentRegistry;

use crate::model_script::{MCP_OUTPUT, SUB_AGENT_PROMPT};

/// An agent to test.
#[derive(Debug, Clone)]
pub(crate) struct TestedAgent {
    pub(crate) name: &'static str,
    /// The directory of installed agents.
    pub(crate) installed: PathBuf,
    /// The workspace of the agent's session, which is at the same path inside the sandbox.
    pub(crate) workspace: PathBuf,
}

/// Returns the selected agents, or all that are installed.
pub(crate) fn selected() -> Vec<TestedAgent> {
    let installed = std::env::var_os("VIV_TEST_AGENTS_DIR").map(PathBuf::from).unwrap_or_default();
    let registry = AgentRegistry::default().with_installed(installed.clone());
    let here = |name: &str| name == "mock" || registry.find(name, None).is_some();
    let selection = std::env::var("VIV_TEST_AGENTS").unwrap_or_default();
    let names = agents::all().map(agents::Agent::id);
    let names: Vec<&'static str> = match &*selection {
        "" => names.filter(|name| here(name)).collect(),
        "all" => names.collect(),
        list => list.split(',').map(|name| agents::by_name(name).expect("a supported agent").id()).collect(),
    };
    let missing: Vec<_> = names.iter().filter(|name| !here(name)).collect();
    assert!(missing.is_empty(), "{missing:?} are not installed in `{}`", installed.display());
    names
        .into_iter()
        .map(|name| TestedAgent { name, installed: installed.clone(), workspace: PathBuf::new() })
        .collect()
}

impl TestedAgent {
    /// Returns the mode in which the agent asks for permission, or its only mode.
    pub(crate) fn mode(&self) -> &'static str {
        if self.asks() { "default" } else { "bypass" }
    }

    /// Returns whether the agent asks for permissions.
    pub(crate) fn asks(&self) -> bool {
        self.name != "pi"
    }

    /// Returns whether the agent has a plan mode.
    pub(crate) fn plans(&self) -> bool {
        let (permission_mode, node) = (Some("plan".to_owned()), Some("/node".into()));
        let context = LaunchContext { permission_mode, node, ..LaunchContext::default() };
        agents::by_name(self.name).is_some_and(|agent| agent.plan(&context).is_ok())
    }

    /// Returns the mode in which the agent asks questions; `None` if it does not ask.
    pub(crate) fn asking_mode(&self) -> Option<&'static str> {
        match self.name {
            "mock" | "claude" | "qwen" => Some("default"),
            // Codex offers questions only in plan mode.
            "codex" => Some("plan"),
            _ => None,
        }
    }

    /// Returns the tool call for a shell command.
    pub(crate) fn command(&self, command: &str) -> Value {
        match self.name {
            "mock" => tool("run_command", json!({"command": ["sh", "-c", command]})),
            "claude" => tool("Bash", json!({"command": command, "description": "a command"})),
            "codex" => tool("exec_command", json!({"cmd": command})),
            "gemini" => tool("run_shell_command", json!({"command": command, "description": "a command"})),
            "qwen" => tool(
                "run_shell_command",
                json!({"command": command, "description": "a command", "is_background": false}),
            ),
            _ => tool("bash", json!({"command": command, "description": "a command"})),
        }
    }

    /// Returns the tool call that writes a new file.
    pub(crate) fn write(&self, name: &str, content: &str) -> Value {
        let path = self.workspace.join(name);
        match self.name {
            "mock" => tool("write_file", json!({"path": path_that_needs_permission(name), "content": content})),
            "claude" => tool("Write", json!({"file_path": path, "content": content})),
            "codex" => {
                let added: Vec<String> = content.lines().map(|line| format!("+{line}")).collect();
                let file = added.join("\n");
                let change = format!("*** Begin Patch\n*** Add File: {name}\n{file}\n*** End Patch\n");
                tool("exec_command", json!({"cmd": format!("apply_patch <<'PATCH'\n{change}PATCH\n")}))
            }
            "gemini" => tool("write_file", json!({"file_path": path, "content": content})),
            "qwen" => tool("edit", json!({"file_path": path, "old_string": "", "new_string": content})),
            "opencode" => tool("write", json!({"filePath": path, "content": content})),
            "copilot" => tool("create", json!({"path": path, "file_text": content})),
            _ => tool("write", json!({"path": path, "content": content})),
        }
    }

    /// Returns the tool call that writes a file without asking, in the mode `acceptEdits`.
    pub(crate) fn write_freely(&self, name: &str, content: &str) -> Value {
        match self.name {
            "mock" => tool("write_file", json!({"path": name, "content": content})),
            _ => self.write(name, content),
        }
    }

    /// Returns the tool calls that replace a line of a file.
    pub(crate) fn edit(&self, name: &str, old: &str, new: &str) -> Vec<Value> {
        let path = self.workspace.join(name);
        let edit = match self.name {
            "mock" => tool("edit_file", json!({"path": path_that_needs_permission(name), "old": old, "new": new})),
            "claude" => tool("Edit", json!({"file_path": path, "old_string": old, "new_string": new})),
            "codex" => {
                let change = format!("*** Begin Patch\n*** Update File: {name}\n@@\n-{old}\n+{new}\n*** End Patch\n");
                tool("exec_command", json!({"cmd": format!("apply_patch <<'PATCH'\n{change}PATCH\n")}))
            }
            "gemini" => {
                let instruction = "Replace one line.";
                let input =
                    json!({"file_path": path, "instruction": instruction, "old_string": old, "new_string": new});
                tool("replace", input)
            }
            "qwen" => tool("edit", json!({"file_path": path, "old_string": old, "new_string": new})),
            "opencode" => tool("edit", json!({"filePath": path, "oldString": old, "newString": new})),
            "copilot" => tool("edit", json!({"path": path, "old_str": old, "new_str": new})),
            _ => tool("edit", json!({"path": path, "edits": [{"oldText": old, "newText": new}]})),
        };
        // Qwen allows an edit only after the file was read.
        let look = (self.name == "qwen").then(|| tool("read_file", json!({"file_path": path})));
        look.into_iter().chain([edit]).collect()
    }

    /// Returns the call of the MCP tool of `equipment/server.sh`.
    pub(crate) fn mcp_call(&self) -> Value {
        let name = match self.name {
            "mock" => return tool("mcp__vivshop__vivpolish", json!({"answer": MCP_OUTPUT})),
            "codex" => "mcp__vivshop/vivpolish",
            "gemini" => "mcp_vivshop_vivpolish",
            "opencode" => "vivshop_vivpolish",
            "copilot" => "vivshop-vivpolish",
            _ => "mcp__vivshop__vivpolish",
        };
        tool(name, json!({}))
    }

    /// Returns the tool call that starts a sub-agent with [`SUB_AGENT_PROMPT`]; `None` if not supported.
    pub(crate) fn sub_agent_call(&self) -> Option<Value> {
        let errand =
            |kind: &str| json!({"description": "an errand", "prompt": SUB_AGENT_PROMPT, "subagent_type": kind});
        Some(match self.name {
            "mock" => tool("task", json!({"prompt": SUB_AGENT_PROMPT})),
            "claude" => tool("Task", errand("general-purpose")),
            "codex" => {
                let errand = json!({"task_name": "errand", "message": SUB_AGENT_PROMPT, "fork_turns": "none"});
                tool("collaboration/spawn_agent", errand)
            }
            "qwen" => tool("agent", errand("general-purpose")),
            _ => return None,
        })
    }

    /// Returns whether the agent reports the plans of its model.
    pub(crate) fn reports_plans(&self) -> bool {
        !["gemini", "copilot"].contains(&self.name)
    }

    /// Returns the model that is offered a tool for plans, if not all are.
    pub(crate) fn plan_model(&self) -> Option<String> {
        (self.name == "claude").then(|| "claude-sonnet-4-5".to_owned())
    }

    /// Returns the tool call for a plan with two steps, one of them finished; `None` if not supported.
    pub(crate) fn plan(&self) -> Option<Value> {
        let steps = |text: &str| {
            let step = |words: &str, status: &str| json!({text: words, "status": status});
            [step("look", "completed"), step("write", "in_progress")]
        };
        let with = |mut steps: [Value; 2], name: &str, values: [&str; 2]| {
            for (step, value) in steps.iter_mut().zip(values) {
                step[name] = json!(value);
            }
            json!({"todos": steps})
        };
        Some(match self.name {
            "mock" => tool("update_plan", json!({"done": ["look"], "left": ["write"]})),
            "claude" => tool("TodoWrite", with(steps("content"), "activeForm", ["looking", "writing"])),
            "gemini" => tool("write_todos", json!({"todos": steps("description")})),
            "codex" => tool("update_plan", json!({"plan": steps("step")})),
            "qwen" => tool("todo_write", with(steps("content"), "id", ["1", "2"])),
            "opencode" => tool("todowrite", with(steps("content"), "priority", ["high", "high"])),
            "copilot" => {
                let query = "INSERT INTO todos (id, title) VALUES ('1', 'look'), ('2', 'write')";
                tool("sql", json!({"description": "insert todos", "query": query}))
            }
            _ => return None,
        })
    }

    /// Returns whether the agent accepts images.
    pub(crate) fn accepts_images(&self) -> bool {
        self.name != "qwen"
    }

    /// Returns the tool call that asks a question.
    pub(crate) fn question(&self) -> Value {
        let option = |label: &str| json!({"label": label, "description": format!("the {label} one")});
        let options = json!([option("Red"), option("Blue")]);
        match self.name {
            "claude" | "qwen" => {
                let question =
                    json!({"question": "Which colour?", "header": "Pick", "multiSelect": false, "options": options});
                let name = if self.name == "qwen" { "ask_user_question" } else { "AskUserQuestion" };
                tool(name, json!({"questions": [question]}))
            }
            "codex" => {
                let question =
                    json!({"id": "colour", "question": "Which colour?", "header": "Pick", "options": options});
                tool("request_user_input", json!({"questions": [question]}))
            }
            _ => tool("ask_user", json!({"question": "Which colour?", "options": ["Red", "Blue"]})),
        }
    }
}

/// Returns a path to a workspace file for which the mock asks. Paths below the workspace need no permission there.
fn path_that_needs_permission(name: &str) -> String {
    format!("/proc/self/cwd/{name}")
}

fn tool(name: &str, input: Value) -> Value {
    json!({"tool": {"name": name, "input": input}})
}
