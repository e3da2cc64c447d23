//! Returns memory to the kernel that only the start of a server needed.
//!
//! `cargo xtask bench sessions` needs this file: its goal for the idle memory of a server fails without it.
//!
//! Here, and not in `cli`, because all `unsafe` code is in this crate.

use std::io;
use std::ops::Range;

use crate::sys;

/// The most arenas of the allocator. Memory that was freed in one arena is not used by another, so a server that was busy
/// once would hold much more than it uses.
const MAX_ARENAS: i32 = 4;

/// Limits the arenas of the allocator. Call it before the first thread is started.
pub fn limit_allocator_arenas() {
    sys::limit_arenas(MAX_ARENAS);
}

/// Returns freed memory and the program's code pages to the kernel. The code stays in the page cache, and the kernel maps
/// each page again when it runs.
pub fn release_startup_memory() -> io::Result<()> {
    sys::trim_allocator();
    let program = std::fs::read_link("/proc/self/exe")?;
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    for range in code_ranges(&maps, &program.to_string_lossy()) {
        sys::unmap_code_pages(range)?;
    }
    Ok(())
}

/// Returns the address ranges of the code of `program`. Its other mappings were written to by the loader.
fn code_ranges<'m>(maps: &'m str, program: &'m str) -> impl Iterator<Item = Range<usize>> + 'm {
    maps.lines().filter_map(move |line| {
        let (range, rest) = line.split_once(' ')?;
        if !rest.starts_with("r-xp ") || !rest.ends_with(program) {
            return None;
        }
        let (start, end) = range.split_once('-')?;
        Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_the_program_is_found() {
        let maps = "1000-2000 r--p 00000000 fe:00 1 /bin/viv\n\
                    2000-5000 r-xp 00001000 fe:00 1 /bin/viv\n\
                    5000-6000 rw-p 00004000 fe:00 1 /bin/viv\n\
                    7000-8000 r-xp 00000000 fe:00 2 /lib/libc.so.6\n";
        assert!(code_ranges(maps, "/bin/viv").eq(std::iter::once(0x2000..0x5000)));
    }

    #[test]
    fn released_code_is_no_longer_resident_and_still_runs() {
        let before = resident_code_kib();
        release_startup_memory().unwrap();
        let after = resident_code_kib();
        assert!(after < before, "{before} KiB of code before, {after} KiB after");
    }

    fn resident_code_kib() -> usize {
        let program = std::fs::read_link("/proc/self/exe").unwrap();
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        // Each mapping begins with a line as in `maps`, followed by lines with details.
        let code = smaps.lines().skip_while(|line| code_ranges(line, &program.to_string_lossy()).next().is_none());
        let resident = code.take(8).find_map(|line| line.strip_prefix("Rss:")).unwrap();
        resident.trim().trim_end_matches(" kB").parse().unwrap()
    }
}
