//! A process and its descendants: memory, descriptors and processor time, from /proc.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Returns the process `root` and its descendants.
pub(crate) fn family(root: u32) -> Vec<u32> {
    let table = parents();
    let mut known = HashSet::from([root]);
    loop {
        let before = known.len();
        known.extend(table.iter().filter(|(_, parent)| known.contains(parent)).map(|(id, _)| *id).collect::<Vec<_>>());
        if known.len() == before {
            return known.into_iter().collect();
        }
    }
}

/// Returns the memory of a process family in KiB. Shared pages count once.
pub(crate) fn memory_kib(root: u32) -> Result<u64> {
    let members = family(root);
    let sizes: Vec<u64> = members.iter().filter_map(|id| proportional_kib(*id)).collect();
    (!sizes.is_empty()).then(|| sizes.iter().sum()).with_context(|| format!("process {root} has ended"))
}

/// Returns the proportional memory of one process in KiB.
pub(crate) fn proportional_kib(id: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{id}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the number of open descriptors of a process.
pub(crate) fn descriptors(id: u32) -> Result<usize> {
    let open = std::fs::read_dir(format!("/proc/{id}/fd")).with_context(|| format!("process {id} has ended"))?;
    Ok(open.count())
}

/// Returns the processor time that a process family has used.
pub(crate) fn processor_time(root: u32) -> Result<Duration> {
    let stats: Vec<ProcessStat> = family(root).into_iter().filter_map(ProcessStat::read).collect();
    ensure!(!stats.is_empty(), "process {root} has ended");
    let ticks: u64 = stats.iter().map(|stat| stat.ticks).sum();
    Ok(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
}

/// Returns every running process with its parent.
fn parents() -> Vec<(u32, u32)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let running = ids.filter_map(|id| Some((id, ProcessStat::read(id)?))).filter(|(_, stat)| !stat.has_ended);
    running.map(|(id, stat)| (id, stat.parent)).collect()
}

/// The fields of /proc/PID/stat that the checks use.
struct ProcessStat {
    parent: u32,
    has_ended: bool,
    /// User and system time.
    ticks: u64,
}

impl ProcessStat {
    /// Reads the entry of one process; `None` when it is gone.
    fn read(id: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The program name is in parentheses and may contain any character.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            parent: u32::try_from(number(1)?).ok()?,
            has_ended: matches!(*fields.first()?, "Z" | "X"),
            ticks: number(11)? + number(12)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_process_is_counted() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(family(std::process::id()).contains(&child.id()));
        assert!(memory_kib(child.id()).unwrap() > 0);
        assert!(descriptors(child.id()).unwrap() >= 3);
        assert!(processor_time(std::process::id()).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!family(std::process::id()).contains(&child.id()));
    }
}
