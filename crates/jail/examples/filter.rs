//! Writes the system call filter of a sandbox in the kernel's format. The bench runs another sandbox with it.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    io::stdout().write_all(&jail::filter_bytes())
}
