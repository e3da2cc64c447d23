//! Skills of one session: fetched on the host, put where its agent looks for them, gone with it.
//!
//! Nothing is written into the repository, the agent's package or another session: what was fetched is kept below
//! the session's own folder, shown read-only, and copied into the home of its sandbox alone.
//!
//! Not here: what a skill says, and whether an agent uses it.

mod discovery;
mod download;
mod git;
mod github;
mod way;

use std::path::{Path, PathBuf};

use agents::ReadOnlyMount;
use protocol::SessionId;
use sandbox::{ExecSpec, Sandbox};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::SessionError;
use crate::host::SessionHost;
use crate::plan::Plan;
use crate::shelf::Shelf;

use discovery::Skill;
use way::Way;

/// Where skills are shown inside, one folder each.
const SHOWN: &str = "/opt/skills";

/// The skills of one session, as a client wrote them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Skills {
    sources: Vec<Source>,
}

/// Where skills come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    #[serde(rename = "type")]
    kind: SourceKind,
    /// A directory, the address of a repository, or OWNER/NAME at GitHub.
    #[serde(rename = "source")]
    place: String,
    /// A branch, a tag or a commit.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    /// A folder of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subpath: Option<String>,
    /// Only these; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    skills: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SourceKind {
    Github,
    Git,
    Local,
}

/// Why skills cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SkillError {
    /// They are described otherwise than the API says.
    #[error("they are not described as skills")]
    InvalidDescription(#[source] serde_json::Error),
    /// A path that leads out of its source, an address that is an option, a name that is none.
    #[error("`{0}` cannot be used here")]
    Unusable(String),
    /// The policy does not let this session reach the source.
    #[error("`{source_name}` is not allowed: {rule}")]
    Denied {
        /// The source.
        source_name: String,
        /// What the policy said.
        rule: String,
    },
    /// The source cannot be read or fetched.
    #[error("`{source_name}` cannot be fetched: {why}")]
    Fetch {
        /// The source.
        source_name: String,
        /// What was said about it.
        why: String,
    },
    /// A skill that was named is not there, or there is none at all.
    #[error("there is no skill `{skill}` in `{source_name}`")]
    Missing {
        /// The skill.
        skill: String,
        /// The source.
        source_name: String,
    },
    /// Two sources have a skill of the same name.
    #[error("there are two skills `{0}`")]
    Duplicate(String),
    /// It could not be put into the sandbox.
    #[error("skill `{skill}` cannot be put into the sandbox: {why}")]
    Install {
        /// The skill.
        skill: String,
        /// What was said about it.
        why: String,
    },
}

impl Skills {
    /// Reads what a client wrote.
    pub(crate) fn read(value: Option<Value>) -> Result<Self, SkillError> {
        match value {
            None | Some(Value::Null) => Ok(Self::default()),
            Some(value) => serde_json::from_value(value).map_err(SkillError::InvalidDescription),
        }
    }

    /// The directories of the host among its sources: what is read from them is read by the host.
    pub(crate) fn here(&self) -> Result<Vec<PathBuf>, SkillError> {
        let mut places = Vec::new();
        for source in &self.sources {
            match source.kind {
                SourceKind::Local => places.push(source.local()?),
                SourceKind::Git if git::remote(&source.place)?.is_none() => {
                    places.push(PathBuf::from(source.place.strip_prefix("file://").unwrap_or(&source.place)));
                }
                SourceKind::Git | SourceKind::Github => {}
            }
        }
        Ok(places)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// As it is kept in the list of sessions.
    pub(crate) fn written(&self) -> Option<Value> {
        if self.is_empty() { None } else { serde_json::to_value(self).ok() }
    }
}

/// The skills of one session, fetched.
#[derive(Debug, Default)]
pub(crate) struct Equipment(Vec<Skill>);

impl Equipment {
    /// Fetches what a plan asks for; what was fetched for the session before is taken again.
    pub(crate) async fn fetch(host: &SessionHost, plan: &Plan) -> Result<Self, SessionError> {
        let mut all: Vec<Skill> = Vec::new();
        for (index, source) in plan.skills.sources.iter().enumerate() {
            let folder = kept(&host.shelf, &plan.id).join(index.to_string());
            let root = source.bring(&folder, host, plan).await?;
            for skill in discovery::find(&root, source)? {
                if all.iter().any(|other| other.name == skill.name) {
                    return Err(SkillError::Duplicate(skill.name).into());
                }
                all.push(skill);
            }
        }
        Ok(Self(all))
    }

    /// What is shown of them inside.
    pub(crate) fn mounts(&self) -> impl Iterator<Item = ReadOnlyMount> {
        let mount =
            |skill: &Skill| ReadOnlyMount { source: skill.folder.clone(), target: format!("{SHOWN}/{}", skill.name) };
        self.0.iter().map(mount)
    }

    /// Copies them to where the agent looks, inside the sandbox and by a program inside it.
    pub(crate) async fn put(&self, sandbox: &dyn Sandbox, root: Option<&str>) -> Result<(), SessionError> {
        let Some(root) = root else { return Ok(()) };
        for Skill { name, .. } in &self.0 {
            let script = "mkdir -p \"$1\" && cp -r -- \"$0\" \"$1\"";
            let command = ["sh", "-c", script, &format!("{SHOWN}/{name}"), root].map(str::to_owned).to_vec();
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

impl Source {
    /// The folder that holds the source, fetched if it is somewhere else.
    async fn bring(&self, folder: &Path, host: &SessionHost, plan: &Plan) -> Result<PathBuf, SkillError> {
        if self.kind == SourceKind::Local {
            return self.local()?.canonicalize().map_err(|error| self.unfetched(&error));
        }
        let opened = Way::open(&host.config.egress, plan.id.clone(), plan.policy.clone());
        let way = opened.map_err(|error| SkillError::Fetch {
            source_name: self.place.clone(),
            why: format!("there is no way out: {error}"),
        })?;
        let fetched = self.fetch(folder, &way).await;
        way.close().await;
        fetched.map(|()| folder.to_owned())
    }

    /// Fetches it, if it is not there from an earlier start of the session; what is there was allowed then, and is
    /// used only as long as it still is.
    async fn fetch(&self, folder: &Path, way: &Way) -> Result<(), SkillError> {
        let address = match self.kind {
            SourceKind::Github => github::archive(&self.place, self.reference.as_deref())?,
            _ => self.place.clone(),
        };
        if let Some((host, port)) = git::remote(&address)? {
            way.judge(&self.place, &host, port)?;
        }
        match self.kind {
            _ if folder.is_dir() => Ok(()),
            SourceKind::Github => {
                let tls = base::tls_client(&[]).map_err(|error| self.unfetched(&error))?;
                github::fetch(&address, way, tls, folder).await
            }
            _ => git::fetch(&address, self.reference.as_deref(), folder, way).await,
        }
    }

    /// Its directory on this host, as it was named.
    fn local(&self) -> Result<PathBuf, SkillError> {
        if self.reference.is_some() || !Path::new(&self.place).is_absolute() {
            return Err(SkillError::Unusable(self.place.clone()));
        }
        Ok(PathBuf::from(&self.place))
    }

    fn unfetched(&self, error: &std::io::Error) -> SkillError {
        SkillError::Fetch { source_name: self.place.clone(), why: error.to_string() }
    }
}

/// Drops what was fetched for a session that has ended.
pub(crate) async fn forget(shelf: &Shelf, id: &SessionId) {
    let folder = kept(shelf, id);
    match tokio::fs::remove_dir_all(&folder).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(session = %id, %error, "cannot drop the skills of a session");
        }
        _ => {}
    }
}

fn kept(shelf: &Shelf, id: &SessionId) -> PathBuf {
    shelf.directory().root().join("skills").join(id.as_str())
}
