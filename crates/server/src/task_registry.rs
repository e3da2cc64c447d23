//! The tasks that were created over the API.
//!
//! A task runs in a session with the same id. Its state is one file, written before the caller gets the response. A task
//! whose server was killed has the status `interrupted`.
//!
//! Not here: parsing and running tasks ([`TaskRunner`], given by the program that starts the server).

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

/// A running task; returns its report.
pub type TaskRun = Pin<Box<dyn Future<Output = Value> + Send>>;

/// Checks a task, and returns its name and the future that runs it in the session with this id and these options.
pub type RunTask = dyn Fn(SessionId, Value, &SessionOptions) -> Result<(String, TaskRun), Box<Problem>> + Send + Sync;

/// Runs tasks.
#[derive(Clone)]
pub struct TaskRunner(pub Arc<RunTask>);

impl std::fmt::Debug for TaskRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TaskRunner")
    }
}

/// The status of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TaskStatus {
    Running,
    Passed,
    Failed,
    Stopped,
    /// The server was killed while the task ran.
    Interrupted,
}

/// The state of a task.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskInfo {
    /// Also the id of its session.
    pub(crate) task_id: SessionId,
    name: String,
    status: TaskStatus,
    /// Milliseconds since 1970.
    created_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended_at: Option<i64>,
    /// The report, as `viv --json task` prints it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    report: Option<Value>,
}

/// The tasks of a data directory.
#[derive(Debug, Clone)]
pub(crate) struct TaskRegistry {
    folder: PathBuf,
    running: Arc<Mutex<HashSet<SessionId>>>,
    tracker: TaskTracker,
}

impl TaskRegistry {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, running: Arc::default(), tracker: TaskTracker::new() }
    }

    /// Starts a task and returns its state. An existing task is returned unchanged.
    pub(crate) fn begin(&self, id: SessionId, name: String, run: TaskRun) -> Result<TaskInfo, ApiError> {
        if let Some(existing) = self.get(&id)? {
            return Ok(existing);
        }
        let created_at = Timestamp::now().as_millisecond();
        let status = TaskStatus::Running;
        let info = TaskInfo { task_id: id.clone(), name, status, created_at, ended_at: None, report: None };
        self.running().insert(id);
        if let Err(error) = self.write(&info) {
            self.running().remove(&info.task_id);
            return Err(storage_error(&error));
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
                tracing::error!(task = %done.task_id, %error, "cannot store the report of a task");
            }
            this.running().remove(&done.task_id);
        });
        Ok(info)
    }

    /// Returns a task; `None` if it does not exist.
    pub(crate) fn get(&self, id: &SessionId) -> Result<Option<TaskInfo>, ApiError> {
        // Checked before the file: a task that ends in between writes its report before it leaves `running`.
        let runs = self.running().contains(id);
        match std::fs::read(self.folder.join(format!("{id}.json"))) {
            Ok(bytes) => {
                let read = serde_json::from_slice::<TaskInfo>(&bytes);
                let mut info = read.map_err(|error| storage_error(&io::Error::other(error)))?;
                if info.status == TaskStatus::Running && !runs {
                    info.status = TaskStatus::Interrupted;
                }
                Ok(Some(info))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(storage_error(&error)),
        }
    }

    /// Returns all tasks without their reports, oldest first.
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

    /// Writes the file under a temporary name first, so that it is never incomplete.
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

/// Returns the sort key of a task: its creation time.
pub(crate) fn order(info: &TaskInfo) -> String {
    format!("{:020} {}", info.created_at, info.task_id)
}

fn storage_error(error: &io::Error) -> ApiError {
    ApiError::storage("cannot store or read the task", error)
}
