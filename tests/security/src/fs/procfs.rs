//! The magic links of /proc, which lead to resources of other processes.

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::attack::{Attack, Group::Fs, Verdict, program};
use crate::lead::Lead;

pub(crate) fn attacks() -> Vec<Attack> {
    vec![
        program(Fs, "fs_proc_root", "read the host's files through /proc/PID/root", root),
        program(Fs, "fs_proc_cwd", "read them through /proc/PID/cwd", cwd),
        program(Fs, "fs_proc_fd", "open a file that another process has open", descriptors),
        program(Fs, "fs_proc_mem", "read the memory of another process through /proc", memory),
        program(Fs, "fs_proc_mem_init", "open the memory of init", memory_of_init),
        program(Fs, "fs_proc_exe", "open the host's own program through /proc/PID/exe", exe),
        program(Fs, "fs_proc_maps", "read the memory map of the host's program", maps),
        program(Fs, "fs_proc_map_files", "open it through /proc/PID/map_files", map_files),
        program(Fs, "fs_proc_ns", "hold a namespace of another process by /proc/PID/ns", namespaces),
    ]
}

/// Tries every process with `attempt`.
fn each(lead: &Lead, attempt: impl Fn(PathBuf) -> Verdict) -> Verdict {
    Verdict::any(lead.processes().into_iter().map(|pid| attempt(PathBuf::from(format!("/proc/{pid}")))))
}

fn read(path: PathBuf) -> Verdict {
    let mut text = String::new();
    let read = fs::File::open(&path).and_then(|mut file| file.read_to_string(&mut text));
    Verdict::of(&format!("{}: {text}", path.display()), read)
}

fn root(lead: &Lead) -> Verdict {
    let secret = lead.secret();
    let below_root = secret.strip_prefix("/").expect("absolute");
    each(lead, |process| read(process.join("root").join(below_root)))
}

fn cwd(lead: &Lead) -> Verdict {
    let secret = lead.secret();
    let up: PathBuf = std::iter::repeat_n("..", 40).collect();
    each(lead, |process| read(process.join("cwd").join(&up).join(secret.strip_prefix("/").expect("absolute"))))
}

fn descriptors(lead: &Lead) -> Verdict {
    each(lead, |process| match fs::read_dir(process.join("fd")) {
        Err(error) => Verdict::Blocked(error.to_string()),
        Ok(open) => {
            let files = open.flatten().filter(|entry| fs::metadata(entry.path()).is_ok_and(|data| data.is_file()));
            Verdict::any(files.map(|entry| read(entry.path())))
        }
    })
}

fn memory(lead: &Lead) -> Verdict {
    let (address, length) = lead.victim_memory;
    each(lead, |process| {
        let mut bytes = vec![0; length];
        let read = fs::File::open(process.join("mem")).and_then(|file| file.read_exact_at(&mut bytes, address));
        Verdict::of(&String::from_utf8_lossy(&bytes), read)
    })
}

fn memory_of_init(lead: &Lead) -> Verdict {
    let pid = if lead.inside { 1 } else { lead.victim };
    let opened = fs::OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"));
    Verdict::of("open for writing", opened)
}

fn exe(lead: &Lead) -> Verdict {
    each(lead, |process| {
        let mut magic = [0; 4];
        let read = fs::File::open(process.join("exe")).and_then(|file| file.read_exact_at(&mut magic, 0));
        Verdict::of("read the program", read)
    })
}

fn maps(lead: &Lead) -> Verdict {
    each(lead, |process| match fs::read_to_string(process.join("maps")) {
        Ok(text) => Verdict::when(text.contains('/'), "names of host files"),
        Err(error) => Verdict::Blocked(error.to_string()),
    })
}

fn map_files(lead: &Lead) -> Verdict {
    each(lead, |process| match fs::read_dir(process.join("map_files")) {
        Ok(entries) => Verdict::any(entries.flatten().map(|entry| Verdict::of("link", fs::read_link(entry.path())))),
        Err(error) => Verdict::Blocked(error.to_string()),
    })
}

fn namespaces(lead: &Lead) -> Verdict {
    let own = |name: &str| fs::read_link(format!("/proc/self/ns/{name}")).ok();
    each(lead, |process| {
        let names = ["net", "mnt", "user", "pid", "cgroup"];
        Verdict::any(names.map(|name| match fs::File::open(process.join("ns").join(name)) {
            // Own namespaces do not count; on the host the victim's namespaces do.
            Ok(_) if lead.inside && fs::read_link(process.join("ns").join(name)).ok() == own(name) => {
                Verdict::Blocked("the same as one's own".into())
            }
            opened => Verdict::of(name, opened),
        }))
    })
}
