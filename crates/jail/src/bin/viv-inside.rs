//! `viv-inside`, the init of a container. It is linked statically, so that it runs in any image.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    // The path of the control socket is the only argument.
    let code = std::env::args_os().nth(1).map(|socket| jail::serve_container_init(Path::new(&socket)));
    ExitCode::from(u8::try_from(code.unwrap_or(2)).unwrap_or(1))
}
