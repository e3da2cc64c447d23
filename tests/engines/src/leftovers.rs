//! Leftovers of containers after the tests: containers, processes and cgroups.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use bollard::query_parameters::EventsOptionsBuilder;
use futures_util::TryStreamExt;

use super::Engine;

/// How long an engine may take to clear away a container that has ended.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The depth of containers' cgroups below the top of the hierarchy.
const DEPTH: usize = 4;

impl Engine {
    /// Returns a description of everything that its containers left, after it had time to remove them.
    pub fn leftovers(&self) -> Vec<String> {
        let made = wait(self.created_ids());
        let started = Instant::now();
        loop {
            let left = self.current_leftovers(&made);
            if left.is_empty() || started.elapsed() > TIMEOUT {
                return left;
            }
            testkit::poll_pause();
        }
    }

    fn current_leftovers(&self, made: &[String]) -> Vec<String> {
        let running = wait(super::running_containers(&self.socket()));
        let mut left: Vec<String> = running.iter().map(|container| format!("{container:?}")).collect();
        left.extend(processes().into_iter().filter(|line| names(line, made)).map(|line| format!("process {line}")));
        left.extend(groups().into_iter().filter(|path| names(path, made)).map(|path| format!("control group {path}")));
        left
    }

    /// Returns the ids of all containers that it created.
    async fn created_ids(&self) -> Vec<String> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_secs();
        let kinds =
            ["type", "event"].map(str::to_owned).into_iter().zip([vec!["container".into()], vec!["create".into()]]);
        let filters: HashMap<String, Vec<String>> = kinds.collect();
        let options = EventsOptionsBuilder::default().since("1").until(&now.to_string()).filters(&filters).build();
        let events = super::connect(&self.socket()).await.events(Some(options)).try_collect::<Vec<_>>().await;
        let actors = events.expect("events").into_iter().filter_map(|event| event.actor?.id);
        actors.collect()
    }
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    runtime.block_on(work)
}

fn names(line: &str, made: &[String]) -> bool {
    made.iter().any(|id| line.contains(id.as_str()))
}

/// Returns all processes with their arguments.
fn processes() -> Vec<String> {
    let listed = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = listed.filter_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some(format!("{} {}", entry.file_name().display(), String::from_utf8_lossy(&line).replace('\0', " ")))
    });
    processes.collect()
}

/// Returns the cgroups of every hierarchy.
fn groups() -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let trees = mounts.lines().filter(|line| line.contains(" - cgroup")).filter_map(|line| line.split(' ').nth(4));
    let mut found = Vec::new();
    for tree in trees {
        find_groups(Path::new(tree), DEPTH, &mut found);
    }
    found
}

fn find_groups(directory: &Path, depth: usize, found: &mut Vec<String>) {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        found.push(entry.path().display().to_string());
        find_groups(&entry.path(), depth - 1, found);
    }
}
