//! The program `basalt`; everything is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    basalt::cli::run(std::env::args_os())
}
