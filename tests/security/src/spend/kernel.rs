//! Kernel resources that are shared with the host: socket buffers, terminals, descriptors, watches, timers.
//!
//! Each attack takes a multiple of what one sandbox may have, and stops there. Everything is released when the attacking
//! process ends; segments and queues, which would stay, are removed.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::attack::{Attack, Group::Spend, Verdict, Walls, program};
use crate::lead::Lead;
use crate::raw::{self, Arg};
use crate::stage::{MEMORY_BYTES, NOFILE, SOCKET_BYTES};

pub(crate) fn attacks() -> Vec<Attack> {
    vec![
        program(Spend, "spend_udp", "fill UDP buffers, which the whole machine shares", udp).behind(Walls::Strict),
        program(Spend, "spend_tcp", "fill TCP buffers, which the whole machine shares", tcp).behind(Walls::Strict),
        program(Spend, "spend_unix", "fill buffers of unix sockets beyond the memory limit", unix)
            .behind(Walls::Strict),
        program(Spend, "spend_in_flight", "keep open files in messages, past the limit of open files", in_flight),
        program(Spend, "spend_terminals", "take the terminals of the machine", terminals),
        program(Spend, "spend_epoll", "take kernel memory as epoll watches", epoll).behind(Walls::Strict),
        program(Spend, "spend_timers", "take the timers and queued signals of the user", timers),
        program(Spend, "spend_page_tables", "take kernel memory as page tables", page_tables).behind(Walls::Strict),
        program(Spend, "spend_segments", "take memory as System V segments", segments).behind(Walls::Strict),
        program(Spend, "spend_messages", "take kernel memory as System V messages", messages).behind(Walls::Strict),
        program(Spend, "spend_line_discipline", "make the kernel load a terminal driver: TIOCSETD", line_discipline),
    ]
}

/// Returns the bytes of buffers that all sockets of a protocol have on this machine.
fn buffers(protocol: &str) -> usize {
    let text = std::fs::read_to_string("/proc/net/sockstat").expect("/proc/net/sockstat");
    let line = text.lines().find(|line| line.starts_with(protocol)).expect("the protocol");
    let pages = line.split_whitespace().skip_while(|word| *word != "mem").nth(1).expect("mem");
    pages.parse::<usize>().expect("a number") * rustix::param::page_size()
}

/// Succeeds when the machine's buffers grow to three times the limit while `held` is open.
fn flooded<T>(protocol: &str, before: usize, held: T) -> Verdict {
    let grown = buffers(protocol).saturating_sub(before);
    drop(held);
    Verdict::when(grown >= SOCKET_BYTES * 3, format!("{} KiB of {protocol} buffers", grown >> 10))
}

/// Datagrams that nobody reads. A socket of the default size holds about 200 KiB.
fn udp(_: &Lead) -> Verdict {
    let before = buffers("UDP:");
    let sockets: Vec<UdpSocket> = (0..NOFILE - 16).map(|_| full_udp_socket().expect("socket")).collect();
    flooded("UDP:", before, sockets)
}

fn full_udp_socket() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let (address, datagram) = (socket.local_addr()?, vec![0; 32 << 10]);
    // A datagram that does not fit is dropped without an error. Each takes more room than its bytes.
    for _ in 0..16 {
        let _ = socket.send_to(&datagram, address);
    }
    Ok(socket)
}

/// Streams that nobody reads. Their buffers grow to some megabytes.
fn tcp(_: &Lead) -> Verdict {
    let before = buffers("TCP:");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listener");
    let connections: Vec<_> = (0..48).map(|_| full_tcp_connection(&listener).expect("connection")).collect();
    flooded("TCP:", before, connections)
}

fn full_tcp_connection(listener: &TcpListener) -> io::Result<(TcpStream, TcpStream)> {
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (receiver, _) = listener.accept()?;
    fill(&mut sender, |sender| sender.set_nonblocking(true))?;
    Ok((sender, receiver))
}

/// Writes until the buffer is full.
fn fill<W: Write>(sender: &mut W, set_nonblocking: impl Fn(&W) -> io::Result<()>) -> io::Result<usize> {
    set_nonblocking(sender)?;
    let (block, mut written) = (vec![0x5a; 64 << 10], 0);
    loop {
        match sender.write(&block) {
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(written),
            Err(error) => return Err(error),
        }
    }
}

/// Lets `count` processes take something and hold it until all have tried; returns how many have it.
fn held_by(count: usize, take: impl Fn() -> io::Result<()>) -> usize {
    let (ready, tell) = rustix::pipe::pipe().expect("pipe");
    let (wait, hold) = rustix::pipe::pipe().expect("pipe");
    let mut children = Vec::new();
    for _ in 0..count {
        match raw::fork().expect("fork") {
            0 => {
                drop((hold, ready));
                let _ = rustix::io::write(&tell, if take().is_ok() { b"y" } else { b"n" });
                drop(tell);
                let _ = rustix::io::read(&wait, &mut [0; 1]);
                raw::exit(0);
            }
            child => children.push(child),
        }
    }
    drop(tell);
    let (mut taken, mut answer) = (0, [0; 1]);
    // A killed process closes its end without an answer.
    while let Ok(1) = rustix::io::read(&ready, &mut answer) {
        taken += usize::from(answer == *b"y");
    }
    drop(hold);
    for child in children {
        let _ = raw::wait(child);
    }
    taken
}

/// Twelve processes, each with as many full socket pairs as it may open. A pair holds about 200 KiB.
fn unix(_: &Lead) -> Verdict {
    const PROCESSES: usize = 12;
    let bytes = MEMORY_BYTES * 2 / PROCESSES;
    let taken = held_by(PROCESSES, || {
        let (mut held, mut written) = (Vec::new(), 0);
        while written < bytes {
            let (mut sender, receiver) = UnixStream::pair()?;
            written += fill(&mut sender, |sender| sender.set_nonblocking(true))?;
            held.push((sender, receiver));
        }
        std::mem::forget(held);
        Ok(())
    });
    Verdict::when(taken == PROCESSES, format!("{taken} of {PROCESSES} processes filled their buffers"))
}

/// Sends descriptors to sockets that nobody reads, and closes them here. A socket takes some hundred messages.
fn in_flight(_: &Lead) -> Verdict {
    const PAIRS: usize = 12;
    let wanted = NOFILE * 3;
    let sent = (0..PAIRS).try_fold(Vec::new(), |mut held, _| {
        let (sender, receiver) = UnixStream::pair()?;
        for _ in 0..wanted / PAIRS {
            send_descriptor(&sender, std::fs::File::open("/dev/null")?.into())?;
        }
        held.push((sender, receiver));
        io::Result::Ok(held)
    });
    Verdict::of(&format!("{wanted} files in messages"), sent)
}

fn send_descriptor(sender: &UnixStream, file: OwnedFd) -> io::Result<()> {
    let fds = [file.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
    control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds));
    let data = [io::IoSlice::new(b"x")];
    rustix::net::sendmsg(sender, &data, &mut control, rustix::net::SendFlags::DONTWAIT)?;
    Ok(())
}

fn terminals(_: &Lead) -> Verdict {
    let wanted = usize::try_from(jail::MAX_TERMINALS).expect("a number") * 2;
    let open = |_| rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY);
    let opened: Result<Vec<OwnedFd>, _> = (0..wanted).map(open).collect();
    Verdict::of(&format!("{wanted} terminals"), opened)
}

/// Each watch is a pair of an epoll descriptor and a watched descriptor, and takes about 200 bytes of the kernel's memory.
fn epoll(_: &Lead) -> Verdict {
    const PROCESSES: usize = 44;
    let taken = held_by(PROCESSES, || {
        use rustix::event::epoll;
        let files: Vec<OwnedFd> = (0..120).map(|_| Ok(rustix::pipe::pipe()?.0)).collect::<io::Result<_>>()?;
        let mut pools = Vec::new();
        for _ in 0..120 {
            let pool = epoll::create(epoll::CreateFlags::empty())?;
            for file in &files {
                epoll::add(&pool, file, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
            }
            pools.push(pool);
        }
        std::mem::forget((files, pools));
        Ok(())
    });
    Verdict::when(taken == PROCESSES, format!("{taken} of {PROCESSES} processes have 14,400 watches"))
}

/// Every timer reserves a queued signal, of which a user has a limited number on the machine.
fn timers(_: &Lead) -> Verdict {
    const WANTED: usize = 8192;
    let made = (0..WANTED).try_for_each(|_| {
        let (clock, no_event) = (Arg::Number(libc::CLOCK_MONOTONIC.into()), Arg::Number(0));
        raw::call(libc::SYS_timer_create, &mut [clock, no_event, Arg::Buffer(&mut [0; 8])]).map(drop)
    });
    Verdict::of(&format!("{WANTED} timers"), made)
}

/// Reading one byte in each 2 MiB of a mapping takes a page table of 4 KiB, and no other memory.
fn page_tables(_: &Lead) -> Verdict {
    let tables = MEMORY_BYTES * 2 / 4096;
    Verdict::of(&format!("{tables} page tables"), raw::take_page_tables(tables))
}

fn segments(_: &Lead) -> Verdict {
    let block = vec![0x5a; 4 << 20];
    let (mut made, mut failure) = (Vec::new(), None);
    while made.len() * block.len() < MEMORY_BYTES * 2 && failure.is_none() {
        match raw::make_segment(&block) {
            Ok(id) => made.push(id),
            Err(error) => failure = Some(error),
        }
    }
    let bytes = made.len() * block.len();
    made.into_iter().for_each(raw::remove_segment);
    Verdict::of(&format!("{} MiB of segments", bytes >> 20), failure.map_or(Ok(()), Err))
}

/// Each queue holds 16 KiB of messages.
fn messages(_: &Lead) -> Verdict {
    const QUEUE: usize = 16 << 10;
    let (mut made, mut failure) = (Vec::new(), None);
    while made.len() * QUEUE < MEMORY_BYTES * 2 && failure.is_none() {
        match full_queue() {
            Ok(queue) => made.push(queue),
            Err(error) => failure = Some(error),
        }
    }
    let bytes = made.len() * QUEUE;
    for queue in made {
        let _ =
            raw::call(libc::SYS_msgctl, &mut [Arg::Number(queue), Arg::Number(libc::IPC_RMID.into()), Arg::Number(0)]);
    }
    Verdict::of(&format!("{} MiB of messages", bytes >> 20), failure.map_or(Ok(()), Err))
}

fn full_queue() -> io::Result<i64> {
    const MESSAGE: usize = 8 << 10;
    let private = Arg::Number(libc::IPC_PRIVATE.into());
    let queue = raw::call(libc::SYS_msgget, &mut [private, Arg::Number((libc::IPC_CREAT | 0o600).into())])?;
    // A message begins with its type, which must be positive.
    let mut message = vec![0; 8 + MESSAGE];
    message[..8].copy_from_slice(&1_i64.to_ne_bytes());
    for _ in 0..2 {
        let (bytes, length) = (Arg::Bytes(&message), Arg::Number(MESSAGE.cast_signed().try_into().unwrap_or(0)));
        let flags = Arg::Number(libc::IPC_NOWAIT.into());
        raw::call(libc::SYS_msgsnd, &mut [Arg::Number(queue), bytes, length, flags])?;
    }
    Ok(queue)
}

/// The usual discipline, which every terminal has: any other one would really load a driver.
fn line_discipline(_: &Lead) -> Verdict {
    const TIOCSETD: u64 = 0x5423;
    let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY;
    let terminal = rustix::pty::openpt(flags).expect("terminal");
    Verdict::of("TIOCSETD", raw::ioctl(&terminal, TIOCSETD, Arg::Bytes(&0_i32.to_ne_bytes())))
}
