//! Prints the tables of allowed and refused system calls for `docs/SANDBOX.md`.

fn main() {
    print!("{}", jail::system_call_tables());
}
