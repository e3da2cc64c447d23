//! System calls that only attackers make, so that no safe crate offers them.
//!
//! This file has all `unsafe` code of the suite. It runs in small single-threaded processes.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int, c_long, c_ulong};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// One argument of a system call.
pub(crate) enum Arg<'a> {
    /// An integer, a flag or a descriptor.
    Number(i64),
    /// A NUL-terminated string.
    Text(&'a CStr),
    /// Memory that the kernel reads.
    Bytes(&'a [u8]),
    /// Memory that the kernel writes, at most its length.
    Buffer(&'a mut [u8]),
}

/// Makes a system call by number. Lengths in the arguments must match the memory in the arguments.
pub(crate) fn call(number: c_long, arguments: &mut [Arg<'_>]) -> io::Result<i64> {
    let mut words = [0_i64; 6];
    for (word, argument) in words.iter_mut().zip(arguments) {
        *word = match argument {
            Arg::Number(number) => *number,
            Arg::Text(text) => text.as_ptr() as i64,
            Arg::Bytes(bytes) => bytes.as_ptr() as i64,
            Arg::Buffer(buffer) => buffer.as_mut_ptr() as i64,
        };
    }
    // SAFETY: every pointer is of borrowed memory that outlives the call; calls that would change the
    // meaning of memory in use (unmapping, cloning with shared memory) are not made through here.
    let result = unsafe { libc::syscall(number, words[0], words[1], words[2], words[3], words[4], words[5]) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Returns a path as a NUL-terminated string.
pub(crate) fn text(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().as_os_str().as_bytes()).unwrap_or_default()
}

/// Forks this single-threaded process; returns zero in the child.
pub(crate) fn fork() -> io::Result<i32> {
    // SAFETY: the caller has one thread, so no lock can be left taken in the child.
    check(unsafe { libc::fork() })
}

fn check(result: c_int) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Ends this process at once.
pub(crate) fn exit(code: c_int) -> ! {
    // SAFETY: _exit touches no memory of ours.
    unsafe { libc::_exit(code) }
}

/// Waits for a child, and returns its raw status.
pub(crate) fn wait(pid: i32) -> io::Result<c_int> {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    check(unsafe { libc::waitpid(pid, &raw mut status, 0) })?;
    Ok(status)
}

/// Duplicates `fd` as `number`, which stays open across exec.
pub(crate) fn leak_as(fd: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    // SAFETY: dup2 takes two integers; no code of this process owns the number that the caller chose.
    check(unsafe { libc::dup2(fd.as_raw_fd(), number) }).map(drop)
}

/// Returns every open descriptor from 3 on; called before this process opens any.
pub(crate) fn open_descriptors() -> Vec<RawFd> {
    // SAFETY: F_GETFD changes nothing.
    (3..1024).filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0).collect()
}

/// Borrows a descriptor that was found open.
pub(crate) fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the descriptor was open at the start of the process, and no code here closes it.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Takes ownership of a descriptor that a call has just returned.
pub(crate) fn own(fd: i64) -> OwnedFd {
    // SAFETY: the kernel has just created the descriptor, and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(RawFd::try_from(fd).unwrap_or(-1)) }
}

/// Leaves namespaces by their flags.
pub(crate) fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: takes flags; the caller has one thread.
    check(unsafe { libc::unshare(flags) }).map(drop)
}

/// Starts a child in new namespaces by clone(2), which ends at once; fails when the kernel refuses.
pub(crate) fn clone_with(flags: c_int) -> io::Result<()> {
    let flags = i64::from(flags | libc::SIGCHLD);
    // SAFETY: without CLONE_VM the child has its own memory and no new stack is needed.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0_i64, 0_i64, 0_i64, 0_i64) };
    ended_child(pid)
}

/// Starts such a child by clone3(2), whose flags are behind a pointer.
pub(crate) fn clone3_with(flags: c_int) -> io::Result<()> {
    let mut arguments = [0_u64; 8];
    arguments[0] = u64::from(flags.cast_unsigned());
    arguments[4] = libc::SIGCHLD as u64;
    // SAFETY: `arguments` is a clone_args of its first version's size; without CLONE_VM memory is copied.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, arguments.as_mut_ptr(), size_of_val(&arguments)) };
    ended_child(pid)
}

fn ended_child(pid: c_long) -> io::Result<()> {
    if pid == 0 {
        exit(0);
    }
    let pid = check(c_int::try_from(pid).unwrap_or(-1))?;
    wait(pid).map(drop)
}

/// Makes a system call by the 32-bit interface, which has its own numbers: `eax`, then `ebx`, `ecx`, `edx`.
#[cfg(target_arch = "x86_64")]
pub(crate) fn call_32_bit(number: u32, arguments: [u32; 3]) -> i64 {
    let result: u64;
    // SAFETY: the calls made through here take integers only. `rbx` is the compiler's, so it is swapped in
    // and out; the gate may clobber r8 to r11.
    unsafe {
        std::arch::asm!(
            "xchg rsi, rbx",
            "int 0x80",
            "xchg rsi, rbx",
            inout("rax") u64::from(number) => result,
            inout("rsi") u64::from(arguments[0]) => _,
            in("rcx") u64::from(arguments[1]),
            in("rdx") u64::from(arguments[2]),
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    // The result is a signed 32-bit number.
    i64::from(u32::try_from(result & 0xffff_ffff).unwrap_or(0).cast_signed())
}

/// Reads another process's memory.
pub(crate) fn process_vm_read(pid: i32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: buffer.len() };
    // SAFETY: `local` spans `buffer`, which outlives the call; the other address is not ours.
    let count = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Writes another process's memory.
pub(crate) fn process_vm_write(pid: i32, address: u64, bytes: &[u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: bytes.len() };
    // SAFETY: `local` spans `bytes`, which the kernel only reads; the other address is not ours.
    let count = unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Attaches to a process, and detaches again.
pub(crate) fn ptrace_attach(pid: i32) -> io::Result<()> {
    let attach = i64::from(libc::PTRACE_ATTACH);
    call(libc::SYS_ptrace, &mut [Arg::Number(attach), Arg::Number(pid.into()), Arg::Number(0), Arg::Number(0)])?;
    wait(pid)?;
    let detach = i64::from(libc::PTRACE_DETACH);
    call(libc::SYS_ptrace, &mut [Arg::Number(detach), Arg::Number(pid.into()), Arg::Number(0), Arg::Number(0)])?;
    Ok(())
}

/// Makes an ioctl with an integer or with borrowed memory.
pub(crate) fn ioctl(fd: impl AsFd, request: c_ulong, argument: Arg<'_>) -> io::Result<()> {
    let fd = Arg::Number(fd.as_fd().as_raw_fd().into());
    call(libc::SYS_ioctl, &mut [fd, Arg::Number(request.cast_signed()), argument]).map(drop)
}

/// Touches `bytes` of new memory page by page and keeps it; with `page_out`, each part is swapped out.
pub(crate) fn take_memory(bytes: usize, page_out: bool) -> io::Result<()> {
    const CHUNK: usize = 1 << 20;
    for _ in 0..bytes / CHUNK {
        let (read_write, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address that the kernel chooses overlaps no other memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), CHUNK, read_write, private, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping is `CHUNK` long and writable; it is kept until the process ends.
        unsafe {
            std::ptr::write_bytes(start.cast::<u8>(), 0xa5, CHUNK);
            if page_out {
                libc::madvise(start, CHUNK, libc::MADV_PAGEOUT);
            }
        }
    }
    Ok(())
}

/// Makes the kernel fill `tables` page tables for a sparse mapping, and keeps them.
pub(crate) fn take_page_tables(tables: usize) -> io::Result<()> {
    const COVERED: usize = 2 << 20;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address that the kernel chooses overlaps no other memory.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), tables * COVERED, libc::PROT_READ, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the range is the new mapping. Without small pages, a huge page of zeroes would need no table.
    check(unsafe { libc::madvise(start, tables * COVERED, libc::MADV_NOHUGEPAGE) })?;
    for table in 0..tables {
        // SAFETY: the byte is inside the mapping, which is readable and kept until the process ends.
        unsafe { start.cast::<u8>().add(table * COVERED).read_volatile() };
    }
    Ok(())
}

/// Overwrites the first bytes of a file through a shared mapping.
pub(crate) fn write_through_mapping(fd: impl AsFd, bytes: &[u8]) -> io::Result<()> {
    let (read_write, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    let raw = fd.as_fd().as_raw_fd();
    // SAFETY: a new mapping at an address that the kernel chooses overlaps no other memory.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes.len(), read_write, shared, raw, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is as long as `bytes`, and the file holds at least one byte of its page.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.cast(), bytes.len());
        check(libc::munmap(start, bytes.len())).map(drop)
    }
}

/// Creates a shared memory segment with `bytes`; [`remove_segment`] removes it.
pub(crate) fn make_segment(bytes: &[u8]) -> io::Result<i32> {
    // SAFETY: the segment is new and large enough; it is mapped only for the copy.
    unsafe {
        let id = check(libc::shmget(libc::IPC_PRIVATE, bytes.len(), libc::IPC_CREAT | 0o666))?;
        let start = libc::shmat(id, std::ptr::null(), 0);
        if start.addr() == usize::MAX {
            return Err(io::Error::last_os_error());
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.cast(), bytes.len());
        libc::shmdt(start);
        Ok(id)
    }
}

/// Returns the content of a segment.
pub(crate) fn read_segment(id: i32, length: usize) -> io::Result<Vec<u8>> {
    // SAFETY: the kernel maps whole pages, so `length` bytes below one page can be read.
    unsafe {
        let start = libc::shmat(id, std::ptr::null(), libc::SHM_RDONLY);
        if start.addr() == usize::MAX {
            return Err(io::Error::last_os_error());
        }
        let bytes = std::slice::from_raw_parts(start.cast::<u8>(), length).to_vec();
        libc::shmdt(start);
        Ok(bytes)
    }
}

/// Removes a segment.
pub(crate) fn remove_segment(id: i32) {
    // SAFETY: IPC_RMID takes no buffer.
    unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
}

/// Lets every process of this user trace this one, where a security module would forbid it.
pub(crate) fn invite_tracers() {
    // SAFETY: takes integers only.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
}

/// Ignores a signal.
pub(crate) fn ignore(signal: c_int) {
    // SAFETY: SIG_IGN is a constant, not a handler.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Ends this process by a signal after `seconds`.
pub(crate) fn alarm(seconds: u32) {
    // SAFETY: alarm takes an integer; the signal's default action ends the process.
    unsafe { libc::alarm(seconds) };
}
