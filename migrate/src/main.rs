//! The command `outrigger`.

use std::process::ExitCode;

fn main() -> ExitCode {
    outrigger_migrate::run(std::env::args_os(), &mut std::io::stdin().lock())
}
