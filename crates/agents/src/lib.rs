//! Launch plans and protocols of all supported agents.
//!
//! Everything here is pure: a `LaunchPlan` is data, and a `Dialogue` translates between lines of an agent and events.
//! Nothing starts a process, reads a clock or touches a file. `normalize` puts the events of every agent in strict
//! order.
//!
//! Not here: running a plan (`sandbox`), and the lifecycle of a session (`session`).

mod capability;
mod dialogue;
mod diff;
mod known_fields;
mod launch;
mod mcp;
mod mode;
mod normalize;
mod package;
mod pattern;
mod questions;
mod raw;
mod registry;
mod requested_change;
mod skeleton;
mod terminal_ui;
mod transcript;

mod acp;
mod control;

mod claude;
mod codex;
mod copilot;
mod gemini;
mod mock;
mod opencode;
mod pi;
mod qwen;

pub use capability::Capabilities;
pub use claude::ClaudeAgent;
pub use codex::CodexAgent;
pub use copilot::CopilotAgent;
pub use dialogue::{Dialogue, DialogueOutput, Prompt, PromptImage};
pub use gemini::GeminiAgent;
pub use launch::{Agent, AgentError, LaunchContext, LaunchPlan, PlacedFile, ReadOnlyMount, SavedHome};
pub use mcp::{McpError, McpServers};
pub use mock::{AgentLine, HostLine, LineItem, MockAgent};
pub use mode::PermissionMode;
pub use normalize::{EventNormalizer, NormalizedDialogue};
pub use opencode::OpencodeAgent;
pub use package::{NODE, NpmPackage, node_folder, versions_folder};
pub use pi::PiAgent;
pub use qwen::QwenAgent;
pub use registry::{UNSUPPORTED, UnsupportedAgent, all, by_name};
pub use requested_change::{RequestedChange, requested_changes};
pub use skeleton::{content_part_name, skeleton};
pub use terminal_ui::{NoDialogue, TerminalUiStart, terminal_ui_plan, undoes_with_ctrl_z};
