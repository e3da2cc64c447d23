//! The directories in which toolchains keep programs and caches. To support another one, add a row.

use super::redact::FileFormat;

/// The way in which a directory is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TreeKind {
    /// Programs and libraries, read-only.
    Programs,
    /// A cache, which gets a private writable layer.
    Cache,
}

/// A directory of a toolchain.
#[derive(Debug)]
pub(super) struct ToolTree {
    /// The name in the policy.
    pub(super) tool: &'static str,
    /// The variable that names the directory, if it is elsewhere.
    pub(super) variable: &'static str,
    /// The directory, relative to the home directory or absolute.
    pub(super) directory: &'static str,
    pub(super) kind: TreeKind,
    /// Directories with programs, relative to the directory.
    pub(super) programs: &'static [&'static str],
    /// Directories whose entries may be links to other places. `*` stands for every name.
    pub(super) links: &'static [&'static str],
    /// Files with credentials, which do not exist inside. `*` stands for every name.
    pub(super) hidden: &'static [&'static str],
    /// Files whose credentials are removed.
    pub(super) redacted: &'static [(&'static str, FileFormat)],
}

const NONE: ToolTree = ToolTree {
    tool: "",
    variable: "",
    directory: "",
    kind: TreeKind::Programs,
    programs: &[],
    links: &[],
    hidden: &[],
    redacted: &[],
};

const fn programs(tool: &'static str, variable: &'static str, directory: &'static str) -> ToolTree {
    ToolTree { tool, variable, directory, ..NONE }
}

const fn cache(tool: &'static str, variable: &'static str, directory: &'static str) -> ToolTree {
    ToolTree { tool, variable, directory, kind: TreeKind::Cache, ..NONE }
}

const CARGO: &[&str] = &["credentials.toml", "credentials", "git/db/*/FETCH_HEAD", ".global-cache-wal"];
const UV: &[&str] = &["credentials", "credentials.toml", "tools/*/uv-receipt.toml"];
const NPMRC: &[(&str, FileFormat)] = &[("versions/node/*/etc/npmrc", FileFormat::Settings)];
const FNM_NPMRC: &[(&str, FileFormat)] = &[("node-versions/*/installation/etc/npmrc", FileFormat::Settings)];

/// All directories.
pub(super) const TREES: &[ToolTree] = &[
    ToolTree { links: &["toolchains"], ..programs("rust", "RUSTUP_HOME", ".rustup") },
    ToolTree {
        programs: &["bin"],
        hidden: CARGO,
        redacted: &[("config.toml", FileFormat::Settings), ("config", FileFormat::Settings)],
        ..cache("rust", "CARGO_HOME", ".cargo")
    },
    ToolTree { programs: &["shims", "bin"], links: &["versions"], ..programs("python", "PYENV_ROOT", ".pyenv") },
    ToolTree { hidden: UV, links: &["python"], ..programs("python", "", ".local/share/uv") },
    ToolTree { hidden: &["venvs/*/pipx_metadata.json"], ..programs("python", "PIPX_HOME", ".local/share/pipx") },
    cache("python", "UV_CACHE_DIR", ".cache/uv"),
    cache("python", "PIP_CACHE_DIR", ".cache/pip"),
    cache("python", "POETRY_CACHE_DIR", ".cache/pypoetry"),
    ToolTree { redacted: NPMRC, ..programs("node", "NVM_DIR", ".nvm") },
    ToolTree {
        programs: &["aliases/default/bin"],
        redacted: FNM_NPMRC,
        ..programs("node", "FNM_DIR", ".local/share/fnm")
    },
    ToolTree { programs: &["bin"], ..programs("node", "VOLTA_HOME", ".volta") },
    ToolTree { hidden: &["_logs"], ..cache("node", "npm_config_cache", ".npm") },
    ToolTree { programs: &[""], hidden: &["auth.ini"], ..cache("node", "PNPM_HOME", ".local/share/pnpm") },
    cache("node", "", ".cache/pnpm"),
    cache("node", "", ".cache/node"),
    cache("node", "", ".cache/yarn"),
    cache("node", "", ".yarn/berry"),
    ToolTree { programs: &["bin"], ..cache("go", "GOPATH", "go") },
    cache("go", "GOMODCACHE", "go/pkg/mod"),
    cache("go", "GOCACHE", ".cache/go-build"),
    programs("go", "", "sdk"),
    ToolTree { programs: &["bin"], ..programs("go", "GOROOT", ".local/go") },
    ToolTree {
        hidden: &["settings-security.xml", "toolchains-security.xml"],
        redacted: &[("settings.xml", FileFormat::MavenSettings)],
        ..cache("java", "", ".m2")
    },
    ToolTree {
        hidden: &["daemon/*/*.log", "init.d", "init.gradle"],
        redacted: &[("gradle.properties", FileFormat::Settings)],
        ..cache("java", "GRADLE_USER_HOME", ".gradle")
    },
    ToolTree { redacted: &[("settings.xml", FileFormat::MavenSettings)], ..programs("java", "", "/etc/maven") },
    programs("java", "", "/etc/java-8-openjdk"),
    programs("java", "", "/etc/java-11-openjdk"),
    programs("java", "", "/etc/java-17-openjdk"),
    programs("java", "", "/etc/java-21-openjdk"),
    programs("java", "", "/etc/java-25-openjdk"),
    ToolTree { links: &["candidates/java"], ..programs("java", "SDKMAN_DIR", ".sdkman") },
    programs("java", "", ".jdks"),
    ToolTree { programs: &["bin"], ..programs("java", "JAVA_HOME", ".local/java") },
    ToolTree { programs: &["bin"], ..programs("deno", "DENO_INSTALL", ".deno") },
    cache("deno", "DENO_DIR", ".cache/deno"),
    ToolTree { programs: &["bin"], ..cache("bun", "BUN_INSTALL", ".bun") },
    ToolTree { programs: &["", "tools"], ..programs("dotnet", "DOTNET_ROOT", ".dotnet") },
    cache("dotnet", "NUGET_PACKAGES", ".nuget/packages"),
    ToolTree { links: &["installs/*"], ..programs("mise", "MISE_DATA_DIR", ".local/share/mise") },
    ToolTree { programs: &["shims"], links: &["installs/*"], ..programs("asdf", "ASDF_DATA_DIR", ".asdf") },
    programs("conda", "MAMBA_ROOT_PREFIX", "micromamba"),
    programs("conda", "CONDA_PREFIX", "miniconda3"),
    programs("conda", "", "miniforge3"),
    programs("conda", "", "mambaforge"),
    programs("conda", "", "anaconda3"),
    ToolTree { programs: &[""], links: &[""], ..programs("local", "", ".local/bin") },
];

/// Variables that a toolchain needs inside, if one of its directories is shown.
pub(super) const VARIABLES: &[(&str, &str, &str)] = &[
    ("rust", "RUSTUP_AUTO_INSTALL", "0"),
    ("python", "UV_LINK_MODE", "copy"),
    ("python", "UV_PYTHON_DOWNLOADS", "never"),
    ("python", "PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("node", "npm_config_update_notifier", "false"),
    ("node", "npm_config_audit", "false"),
    ("node", "npm_config_fund", "false"),
];

/// Variables that make a toolchain use its cache alone, for a sandbox without network.
pub(super) const OFFLINE_VARIABLES: &[(&str, &str, &str)] = &[
    ("rust", "CARGO_NET_OFFLINE", "true"),
    ("python", "UV_OFFLINE", "1"),
    ("python", "PIP_NO_INDEX", "1"),
    ("node", "npm_config_offline", "true"),
    ("go", "GOPROXY", "off"),
    ("java", "MAVEN_ARGS", "-o"),
];
