//! Skills of one session: fetched on the host and copied to the folder in which the agent looks for skills.
//!
//! Fetched files are in the session's own folder, mounted read-only, and copied into the home of its sandbox. Nothing is
//! written to the repository, the agent's package or another session. They are deleted when the session ends.
//!
//! Not here: the content of skills, and whether an agent uses them.

mod discovery;
mod download;
mod fetch_proxy;
mod git;
mod github;

use std::path::{Path, PathBuf};

use agents::ReadOnlyMount;
use protocol::SessionId;
use sandbox::{ExecSpec, Sandbox};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::SessionError;
use crate::lifecycle::{SessionHost, SessionPlan};
use crate::storage::SessionStore;

use discovery::Skill;
use fetch_proxy::FetchProxy;

/// The mount point of skills in the sandbox, one folder each.
const MOUNT_POINT: &str = "/opt/skills";

/// The skill sources of one session, as the client wrote them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SkillSources {
    sources: Vec<SkillSource>,
}

/// One source of skills.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SkillSource {
    #[serde(rename = "type")]
    kind: SkillSourceKind,
    /// A directory, the URL of a repository, or OWNER/NAME on GitHub.
    #[serde(rename = "source")]
    location: String,
    /// A branch, a tag or a commit.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    /// A folder in the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subpath: Option<String>,
    /// Names of the skills to use; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    skills: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SkillSourceKind {
    Github,
    Git,
    Local,
}

/// Why skills cannot be fetched or installed.
#[derive(Debug, thiserror::Error)]
pub enum SkillError {
    /// The description does not match the API.
    #[error("invalid description of skills")]
    InvalidDescription(#[source] serde_json::Error),
    /// A path that leaves its source, an unsupported URL, or an invalid name.
    #[error("invalid path, URL or name `{0}`")]
    Invalid(String),
    /// The policy does not let this session reach the source.
    #[error("the policy does not allow `{source_name}`: {rule}")]
    Denied {
        /// The source.
        source_name: String,
        /// The policy rule.
        rule: String,
    },
    /// The source cannot be read or fetched.
    #[error("cannot fetch `{source_name}`: {why}")]
    Fetch {
        /// The source.
        source_name: String,
        /// The cause.
        why: String,
    },
    /// A named skill is missing, or the source has no skill at all.
    #[error("no skill `{skill}` in `{source_name}`")]
    Missing {
        /// The skill.
        skill: String,
        /// The source.
        source_name: String,
    },
    /// Two sources have a skill with the same name.
    #[error("two skills have the name `{0}`")]
    Duplicate(String),
    /// The skill could not be copied into the sandbox.
    #[error("cannot copy skill `{skill}` into the sandbox: {why}")]
    Install {
        /// The skill.
        skill: String,
        /// The cause.
        why: String,
    },
}

impl SkillSources {
    /// Parses the description that a client wrote.
    pub(crate) fn read(value: Option<Value>) -> Result<Self, SkillError> {
        match value {
            None | Some(Value::Null) => Ok(Self::default()),
            Some(value) => serde_json::from_value(value).map_err(SkillError::InvalidDescription),
        }
    }

    /// Returns the host directories among the sources, which the host process reads.
    pub(crate) fn host_directories(&self) -> Result<Vec<PathBuf>, SkillError> {
        let mut directories = Vec::new();
        for source in &self.sources {
            match source.kind {
                SkillSourceKind::Local => directories.push(source.local()?),
                SkillSourceKind::Git if git::remote(&source.location)?.is_none() => {
                    directories
                        .push(PathBuf::from(source.location.strip_prefix("file://").unwrap_or(&source.location)));
                }
                SkillSourceKind::Git | SkillSourceKind::Github => {}
            }
        }
        Ok(directories)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Returns the description for the session index; `None` without sources.
    pub(crate) fn to_json(&self) -> Option<Value> {
        if self.is_empty() { None } else { serde_json::to_value(self).ok() }
    }
}

/// The fetched skills of one session.
#[derive(Debug, Default)]
pub(crate) struct FetchedSkills(Vec<Skill>);

impl FetchedSkills {
    /// Fetches the skills of a plan. Reuses sources that were fetched at an earlier start of the session.
    pub(crate) async fn fetch(host: &SessionHost, plan: &SessionPlan) -> Result<Self, SessionError> {
        let mut all: Vec<Skill> = Vec::new();
        for (index, source) in plan.skills.sources.iter().enumerate() {
            let folder = skills_folder(&host.store, &plan.id).join(index.to_string());
            let root = source.open(&folder, host, plan).await?;
            for skill in discovery::find(&root, source)? {
                if all.iter().any(|other| other.name == skill.name) {
                    return Err(SkillError::Duplicate(skill.name).into());
                }
                all.push(skill);
            }
        }
        Ok(Self(all))
    }

    /// Returns the mounts that show the skills in the sandbox.
    pub(crate) fn mounts(&self) -> impl Iterator<Item = ReadOnlyMount> {
        let mount = |skill: &Skill| ReadOnlyMount {
            source: skill.folder.clone(),
            target: format!("{MOUNT_POINT}/{}", skill.name),
        };
        self.0.iter().map(mount)
    }

    /// Copies the skills to the agent's folder `root`, with a program inside the sandbox.
    pub(crate) async fn install(&self, sandbox: &dyn Sandbox, root: Option<&str>) -> Result<(), SessionError> {
        let Some(root) = root else { return Ok(()) };
        for Skill { name, .. } in &self.0 {
            let script = "mkdir -p \"$1\" && cp -r -- \"$0\" \"$1\"";
            let command = ["sh", "-c", script, &format!("{MOUNT_POINT}/{name}"), root].map(str::to_owned).to_vec();
            let spec = ExecSpec { command, output_limit: Some(4096), ..ExecSpec::default() };
            let result = sandbox::run(sandbox, spec, &mut |_, _| ()).await?;
            if result.exit.code != Some(0) {
                let (skill, why) = (name.clone(), String::from_utf8_lossy(&result.stderr).trim().to_owned());
                return Err(SkillError::Install { skill, why }.into());
            }
        }
        Ok(())
    }
}

impl SkillSource {
    /// Returns the folder of the source, after fetching it if it is remote.
    async fn open(&self, folder: &Path, host: &SessionHost, plan: &SessionPlan) -> Result<PathBuf, SkillError> {
        if self.kind == SkillSourceKind::Local {
            return self.local()?.canonicalize().map_err(|error| self.fetch_error(&error));
        }
        let opened = FetchProxy::open(&host.config.egress, plan.id.clone(), plan.policy.clone());
        let proxy = opened.map_err(|error| SkillError::Fetch {
            source_name: self.location.clone(),
            why: format!("cannot start the egress proxy: {error}"),
        })?;
        let fetched = self.fetch(folder, &proxy).await;
        proxy.close().await;
        fetched.map(|()| folder.to_owned())
    }

    /// Fetches the source, unless an earlier start of the session did. Fails when the policy does not allow the source,
    /// also when it was fetched before.
    async fn fetch(&self, folder: &Path, proxy: &FetchProxy) -> Result<(), SkillError> {
        let address = match self.kind {
            SkillSourceKind::Github => github::archive_url(&self.location, self.reference.as_deref())?,
            _ => self.location.clone(),
        };
        if let Some((host, port)) = git::remote(&address)? {
            proxy.check(&self.location, &host, port)?;
        }
        match self.kind {
            _ if folder.is_dir() => Ok(()),
            SkillSourceKind::Github => {
                let tls = base::tls_client(&[]).map_err(|error| self.fetch_error(&error))?;
                github::fetch(&address, proxy, tls, folder).await
            }
            _ => git::fetch(&address, self.reference.as_deref(), folder, proxy).await,
        }
    }

    /// Returns the host directory of a local source; fails for a relative path or a source with a `ref`.
    fn local(&self) -> Result<PathBuf, SkillError> {
        if self.reference.is_some() || !Path::new(&self.location).is_absolute() {
            return Err(SkillError::Invalid(self.location.clone()));
        }
        Ok(PathBuf::from(&self.location))
    }

    fn fetch_error(&self, error: &std::io::Error) -> SkillError {
        SkillError::Fetch { source_name: self.location.clone(), why: error.to_string() }
    }
}

/// Deletes the fetched skills of a session that has ended.
pub(crate) async fn remove_fetched_skills(store: &SessionStore, id: &SessionId) {
    let folder = skills_folder(store, id);
    match tokio::fs::remove_dir_all(&folder).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(session = %id, %error, "cannot delete the fetched skills");
        }
        _ => {}
    }
}

fn skills_folder(store: &SessionStore, id: &SessionId) -> PathBuf {
    store.directory().root().join("skills").join(id.as_str())
}
