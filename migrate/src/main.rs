//! The command `outrigger`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Not locked: `outrigger apply` asks on it.
    outrigger_migrate::run(std::env::args_os(), &mut std::io::stdin())
}
