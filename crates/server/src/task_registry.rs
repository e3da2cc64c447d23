//! Tasks that were handed in over the API.
//!
//! A task is a session, and has its id; what is known of it is in a file of its own, written before the caller hears that
//! it was taken. A task whose server was killed is told as `interrupted`.
//!
//! Not here: what a task can say and how it is done (whoever starts the server hands in a [`TaskRunner`]).

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use base::lock;
use jiff::Timestamp;
use protocol::{Problem, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use session::SessionOptions;
use tokio_util::task::TaskTracker;
use utoipa::ToSchema;

use crate::error::ApiError;

/// A task that is being done; in the end, what came of it.
pub type TaskRun = Pin<Box<dyn Future<Output = Value> + Send>>;

/// What a [`TaskRunner`] does: looks at a task and refuses it, or gives its name and how it is done in the session of that id,
/// which is made as the options of its caller say.
pub type RunTask = dyn Fn(SessionId, Value, &SessionOptions) -> Result<(String, TaskRun), Box<Problem>> + Send + Sync;

/// Does tasks.
#[derive(Clone)]
pub struct TaskRunner(pub Arc<RunTask>);

impl std::fmt::Debug for TaskRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tasker")
    }
}

/// How a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TaskStatus {
    Running,
    Passed,
    Failed,
    Stopped,
    /// Its server was killed.
    Interrupted,
}

/// What is known of a task.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskInfo {
    /// Also the id of the session it is done in.
    pub(crate) task_id: SessionId,
    name: String,
    status: TaskStatus,
    /// Milliseconds since 1970.
    created_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended_at: Option<i64>,
    /// What came of it, as `viv --json task` prints it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    report: Option<Value>,
}

/// Every task of a data directory.
#[derive(Debug, Clone)]
pub(crate) struct Tasks {
    folder: PathBuf,
    running: Arc<Mutex<HashSet<SessionId>>>,
    tracker: TaskTracker,
}

impl Tasks {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, running: Arc::default(), tracker: TaskTracker::new() }
    }

    /// Takes a task and begins it. One that is there already stays as it is.
    pub(crate) fn begin(&self, id: SessionId, name: String, run: TaskRun) -> Result<TaskInfo, ApiError> {
        if let Some(there) = self.get(&id)? {
            return Ok(there);
        }
        let created_at = Timestamp::now().as_millisecond();
        let status = TaskStatus::Running;
        let info = TaskInfo { task_id: id.clone(), name, status, created_at, ended_at: None, report: None };
        self.running().insert(id);
        if let Err(error) = self.write(&info) {
            self.running().remove(&info.task_id);
            return Err(not_kept(&error));
        }
        let (this, mut done) = (self.clone(), info.clone());
        self.tracker.spawn(async move {
            let report = run.await;
            done.status = match report["outcome"].as_str() {
                Some("passed") => TaskStatus::Passed,
                Some("stopped") => TaskStatus::Stopped,
                _ => TaskStatus::Failed,
            };
            (done.ended_at, done.report) = (Some(Timestamp::now().as_millisecond()), Some(report));
            if let Err(error) = this.write(&done) {
                tracing::error!(task = %done.task_id, %error, "cannot keep what came of a task");
            }
            this.running().remove(&done.task_id);
        });
        Ok(info)
    }

    /// One task.
    pub(crate) fn get(&self, id: &SessionId) -> Result<Option<TaskInfo>, ApiError> {
        // Looked at first: a task that ends in between has its report written before it is no longer here.
        let runs = self.running().contains(id);
        match std::fs::read(self.folder.join(format!("{id}.json"))) {
            Ok(bytes) => {
                let read = serde_json::from_slice::<TaskInfo>(&bytes);
                let mut info = read.map_err(|error| not_kept(&io::Error::other(error)))?;
                if info.status == TaskStatus::Running && !runs {
                    info.status = TaskStatus::Interrupted;
                }
                Ok(Some(info))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(not_kept(&error)),
        }
    }

    /// All of them, without their reports.
    pub(crate) fn list(&self) -> Result<Vec<TaskInfo>, ApiError> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let ids = names.filter_map(|name| SessionId::new(name.strip_suffix(".json")?).ok());
        let mut all = Vec::new();
        for id in ids {
            all.extend(self.get(&id)?.map(|info| TaskInfo { report: None, ..info }));
        }
        all.sort_by_cached_key(order);
        Ok(all)
    }

    /// Under another name first, so that there is never half a file.
    fn write(&self, info: &TaskInfo) -> io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        serde_json::to_writer(&mut file, info)?;
        file.as_file().sync_all()?;
        file.persist(self.folder.join(format!("{}.json", info.task_id)))?;
        std::fs::File::open(&self.folder)?.sync_all()
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashSet<SessionId>> {
        lock(&self.running)
    }
}

/// What orders tasks: when they were handed in.
pub(crate) fn order(info: &TaskInfo) -> String {
    format!("{:020} {}", info.created_at, info.task_id)
}

fn not_kept(error: &io::Error) -> ApiError {
    ApiError::unkept("what is known of the task cannot be kept or read", error)
}
