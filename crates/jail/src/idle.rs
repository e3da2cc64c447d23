//! What a server that waits need not hold.

use std::io;
use std::ops::Range;

use crate::sys;

/// Threads allocate from so many parts of memory. What was freed in one is of no use to the others: with many of them a
/// server that was busy once holds on to much more than it uses.
const ARENAS: i32 = 4;

/// Has threads that are about to be started share what they free. Called before there are any.
pub fn share_memory() {
    sys::bound_arenas(ARENAS);
}

/// Gives back what only the start needed: memory that was freed and kept, and code that has run and will hardly run
/// again. The code stays in the page cache and comes back from there, page by page, where it does.
pub fn give_back_what_the_start_needed() -> io::Result<()> {
    sys::trim_allocator();
    let program = std::fs::read_link("/proc/self/exe")?;
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    for range in code_of(&maps, &program.to_string_lossy()) {
        sys::forget_code(range)?;
    }
    Ok(())
}

/// Where the code of `program` lies. What else it maps was written to when it was loaded.
fn code_of<'m>(maps: &'m str, program: &'m str) -> impl Iterator<Item = Range<usize>> + 'm {
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
        assert!(code_of(maps, "/bin/viv").eq(std::iter::once(0x2000..0x5000)));
    }

    #[test]
    fn a_program_goes_on_with_fewer_pages() {
        let held = resident_code_kib();
        give_back_what_the_start_needed().unwrap();
        let holds = resident_code_kib();
        assert!(holds < held, "{held} KiB of code before, {holds} after");
    }

    fn resident_code_kib() -> usize {
        let program = std::fs::read_link("/proc/self/exe").unwrap();
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        // Each mapping is a line as in `maps`, and lines that say more about it.
        let code = smaps.lines().skip_while(|line| code_of(line, &program.to_string_lossy()).next().is_none());
        let resident = code.take(8).find_map(|line| line.strip_prefix("Rss:")).unwrap();
        resident.trim().trim_end_matches(" kB").parse().unwrap()
    }
}
