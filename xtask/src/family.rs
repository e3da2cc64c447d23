//! A process and what descends from it, as the kernel counts it.

use std::collections::HashSet;

use anyhow::{Context, Result};

/// A process and everything that descends from it.
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

/// Memory of all of a family in KiB, where pages that several share count once.
pub(crate) fn memory_kib(root: u32) -> Result<u64> {
    let members = family(root);
    let sizes: Vec<u64> = members.iter().filter_map(|id| proportional_kib(*id)).collect();
    (!sizes.is_empty()).then(|| sizes.iter().sum()).with_context(|| format!("process {root} is gone"))
}

/// Memory of one process in KiB, its share of pages that others have too.
pub(crate) fn proportional_kib(id: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{id}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// How many descriptors a process has open.
pub(crate) fn descriptors(id: u32) -> Result<usize> {
    let open = std::fs::read_dir(format!("/proc/{id}/fd")).with_context(|| format!("process {id} is gone"))?;
    Ok(open.count())
}

/// Every process that has not ended, with its parent.
fn parents() -> Vec<(u32, u32)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let rows = entries.filter_map(|entry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name stands in parentheses and may hold anything.
        let mut rest = stat.rsplit_once(')')?.1.split_whitespace();
        let ended = matches!(rest.next()?, "Z" | "X");
        let parent = rest.next()?.parse().ok()?;
        (!ended).then_some((id, parent))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_of_the_family_and_has_memory() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(family(std::process::id()).contains(&child.id()));
        assert!(memory_kib(child.id()).unwrap() > 0);
        assert!(descriptors(child.id()).unwrap() >= 3);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!family(std::process::id()).contains(&child.id()));
    }
}
