//! Files that run by themselves: the built-in list.
//!
//! A program on the host reads or executes these files without being asked: a service after a push, a tool in the
//! directory, an agent at its start. A change of such a file is applied only when a person names the path. Makefiles,
//! manifests and scripts are not in the list, because a person starts them.
//!
//! Files that git or an editor executes unseen are refused, and are not here.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The reason why a file runs by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// A continuous integration service runs it after a push.
    CiWorkflow,
    /// A hook manager runs it at a commit or push.
    Hook,
    /// A tool obeys it when it is started in the directory.
    ToolConfiguration,
    /// A coding agent obeys it.
    AgentInstructions,
    /// The file selects programs and repositories for git.
    GitConfiguration,
}

impl fmt::Display for RunKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CiWorkflow => "CI workflow",
            Self::Hook => "hook",
            Self::ToolConfiguration => "tool configuration",
            Self::AgentInstructions => "agent instructions",
            Self::GitConfiguration => "git configuration",
        })
    }
}

/// The globs of each kind in folded form, at any depth of a workspace.
pub(crate) const RUNS_BY_ITSELF: [(RunKind, &[&str]); 5] = [
    (
        RunKind::CiWorkflow,
        &[
            ".github/workflows/**",
            ".github/actions/**",
            ".gitea/workflows/**",
            ".forgejo/workflows/**",
            ".gitlab-ci.yml",
            ".gitlab/ci/**",
            ".circleci/**",
            ".buildkite/**",
            ".semaphore/**",
            ".woodpecker/**",
            ".woodpecker.yml",
            ".travis.yml",
            ".drone.yml",
            ".cirrus.yml",
            ".appveyor.yml",
            "appveyor.yml",
            "azure-pipelines.yml",
            ".azure-pipelines/**",
            "bitbucket-pipelines.yml",
            "jenkinsfile",
        ],
    ),
    (
        RunKind::Hook,
        &[
            ".husky/**",
            ".githooks/**",
            ".git-hooks/**",
            "lefthook*",
            ".lefthook*",
            ".pre-commit-config.yaml",
            ".pre-commit-hooks.yaml",
            ".overcommit.yml",
            ".simple-git-hooks.*",
            ".lintstagedrc*",
            ".github/hooks/**",
        ],
    ),
    (
        RunKind::ToolConfiguration,
        &[
            ".cargo/config.toml",
            ".cargo/config",
            "rust-toolchain",
            "rust-toolchain.toml",
            ".npmrc",
            ".pnpmfile.cjs",
            ".pnpmfile.mjs",
            ".yarnrc",
            ".yarnrc.yml",
            ".yarn/releases/**",
            ".yarn/plugins/**",
            ".mvn/**",
            ".bazelrc",
            ".bundle/config",
            "mise.toml",
            ".mise.toml",
            "mise.*.toml",
            ".mise.*.toml",
            ".mise/**",
            ".tool-versions",
            ".envrc",
            ".direnv/**",
            ".vim/**",
            ".vimrc",
            ".nvim*",
            ".nvim/**",
            ".exrc",
            "mise/config.toml",
            ".config/mise/**",
            ".lvimrc",
            "bunfig.toml",
            ".vs/**",
            ".fleet/**",
            "*.sublime-project",
            ".gitpod.yml",
            ".replit",
            ".bash_login",
            ".bash_profile",
            ".bashrc",
            ".profile",
            ".zlogin",
            ".zprofile",
            ".zshenv",
            ".zshrc",
            ".ssh/**",
            ".tmux.conf",
            ".screenrc",
            ".gdbinit",
            ".lldbinit",
            ".irbrc",
            ".pryrc",
            ".pdbrc",
            ".rprofile",
            ".iex.exs",
            ".ocamlinit",
            ".ghci",
            ".octaverc",
        ],
    ),
    (
        RunKind::AgentInstructions,
        &[
            "claude.md",
            "claude.local.md",
            "agents.md",
            "agents.override.md",
            "gemini.md",
            "qwen.md",
            ".mcp.json",
            ".cursorrules",
            ".windsurfrules",
            ".clinerules",
            ".clinerules/**",
            ".roorules",
            ".roomodes",
            ".goosehints",
            ".aider.conf.yml",
            "opencode.json",
            "opencode.jsonc",
            ".github/copilot-instructions.md",
            ".github/instructions/**",
            ".github/prompts/**",
            ".github/agents/**",
            ".agents/**",
            ".amp/**",
            ".claude/**",
            ".codex/**",
            ".continue/**",
            ".cursor/**",
            ".gemini/**",
            ".junie/**",
            ".kiro/**",
            ".opencode/**",
            ".pi/**",
            ".qwen/**",
            ".roo/**",
            ".windsurf/**",
        ],
    ),
    (RunKind::GitConfiguration, &[".gitattributes", ".gitmodules", ".gitconfig", ".lfsconfig"]),
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::RUNS_BY_ITSELF;

    #[test]
    fn document_lists_every_glob() {
        let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/SANDBOX.md");
        let text = std::fs::read_to_string(document).unwrap();
        for (kind, globs) in RUNS_BY_ITSELF {
            for glob in globs {
                assert!(text.contains(&format!("`**/{glob}`")), "docs/SANDBOX.md does not list `{glob}` ({kind})");
            }
        }
    }

    #[test]
    fn globs_are_written_in_folded_form() {
        for glob in RUNS_BY_ITSELF.iter().flat_map(|(_, globs)| *globs) {
            assert_eq!(glob.to_lowercase(), **glob);
        }
    }
}
