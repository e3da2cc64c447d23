//! The one program of ours inside a container: its init. Linked statically, so that it runs in any image.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    // The socket is the only argument.
    let served = std::env::args_os().nth(1).map(|socket| jail::serve_guest(Path::new(&socket)));
    ExitCode::from(u8::try_from(served.unwrap_or(2)).unwrap_or(1))
}
