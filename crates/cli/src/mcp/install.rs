//! `viv mcp install CLIENT`: registers `viv mcp serve` in the client's own configuration file.
//!
//! Everything else in the file stays, and a second run changes nothing. `--undo` removes only our entry.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use mcp::SERVER_NAME;
use protocol::ProblemCode;
use serde_json::{Value, json};

use super::client_file::{ClientFile, Edit, FileFormat};
use crate::config;
use crate::failure::Failure;
use crate::output::{self, message};

#[derive(Debug, Args)]
pub(crate) struct InstallArguments {
    /// Agent or editor
    #[arg(value_enum)]
    client: Client,
    /// Configuration to change: that of the project in the current directory, or that of the user
    #[arg(long, value_enum, default_value = "user")]
    scope: Scope,
    /// Print the new content of the file instead of writing it
    #[arg(long)]
    print: bool,
    /// Remove the registration
    #[arg(long)]
    undo: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Client {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// Gemini CLI
    Gemini,
    /// OpenCode
    Opencode,
    /// Cursor
    Cursor,
    /// Visual Studio Code
    Vscode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scope {
    /// The project in the current directory
    Project,
    /// The user
    User,
}

impl Client {
    /// Returns the file, relative to the project or the home directory.
    fn file(self, scope: Scope) -> &'static str {
        match (self, scope) {
            (Self::Claude, Scope::Project) => ".mcp.json",
            (Self::Claude, Scope::User) => ".claude.json",
            (Self::Codex, _) => ".codex/config.toml",
            (Self::Gemini, _) => ".gemini/settings.json",
            (Self::Opencode, Scope::Project) => "opencode.json",
            (Self::Opencode, Scope::User) => ".config/opencode/opencode.json",
            (Self::Cursor, _) => ".cursor/mcp.json",
            (Self::Vscode, Scope::Project) => ".vscode/mcp.json",
            (Self::Vscode, Scope::User) => ".config/Code/User/mcp.json",
        }
    }

    /// Returns the key of the object that contains the servers.
    fn section(self) -> &'static str {
        match self {
            Self::Claude | Self::Gemini | Self::Cursor => "mcpServers",
            Self::Codex => "mcp_servers",
            Self::Opencode => "mcp",
            Self::Vscode => "servers",
        }
    }

    /// Returns the entry that starts `program` with `arguments`.
    fn entry(self, program: &str, arguments: &[String]) -> Value {
        match self {
            Self::Claude | Self::Vscode => json!({"type": "stdio", "command": program, "args": arguments}),
            Self::Codex | Self::Gemini | Self::Cursor => json!({"command": program, "args": arguments}),
            Self::Opencode => {
                let words: Vec<&str> = std::iter::once(program).chain(arguments.iter().map(String::as_str)).collect();
                json!({"type": "local", "command": words, "enabled": true})
            }
        }
    }

    fn format(self) -> FileFormat {
        if self == Self::Codex { FileFormat::Toml } else { FileFormat::Json }
    }
}

/// Runs `viv mcp install`.
pub(super) fn carry_out(arguments: &InstallArguments, json: bool) -> Result<ExitCode, Failure> {
    let file = ClientFile {
        path: path(arguments)?,
        format: arguments.client.format(),
        section: arguments.client.section(),
        name: SERVER_NAME,
    };
    let edit = if arguments.undo {
        Edit::Remove
    } else {
        let program = std::env::current_exe().map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
        Edit::Set(arguments.client.entry(&program.to_string_lossy(), &["mcp".to_owned(), "serve".to_owned()]))
    };
    let new = file.edited(&edit)?;
    if arguments.print {
        output::print(&new.text)?;
        return Ok(ExitCode::SUCCESS);
    }
    if new.is_changed {
        file.write(&new.text)?;
    }
    if json {
        output::print_json(&json!({"file": file.path, "server": SERVER_NAME, "changed": new.is_changed}))?;
        return Ok(ExitCode::SUCCESS);
    }
    let path = file.path.display();
    match (arguments.undo, new.is_changed) {
        (false, true) => message!("registered {SERVER_NAME} in {path}"),
        (false, false) => message!("{SERVER_NAME} is already registered in {path}"),
        (true, true) => message!("removed {SERVER_NAME} from {path}"),
        (true, false) => message!("{SERVER_NAME} is not registered in {path}"),
    }
    Ok(ExitCode::SUCCESS)
}

fn path(arguments: &InstallArguments) -> Result<PathBuf, Failure> {
    let relative = Path::new(arguments.client.file(arguments.scope));
    match arguments.scope {
        Scope::Project => {
            let current = std::env::current_dir();
            Ok(current.map_err(|error| Failure::from_error(ProblemCode::InvalidRequest, &error))?.join(relative))
        }
        Scope::User => config::home().map(|home| home.join(relative)).ok_or_else(|| {
            Failure::new(ProblemCode::ConfigInvalid, "the variable HOME is not set")
                .help("viv mcp install claude --scope project")
        }),
    }
}
