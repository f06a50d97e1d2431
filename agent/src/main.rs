//! `gpuprod`: reads the command line, hands it to the library, prints what failed, once.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use gpuprod::cli::{Cli, Command};
use gpuprod::run::{is_broken_pipe, run};

/// Wrong usage, and a `check` that could not look: "cannot tell", never "critical".
const UNKNOWN: u8 = 3;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(UNKNOWN),
            };
        }
    };
    let failed = match cli.command {
        Command::Check { .. } => UNKNOWN,
        _ => 1,
    };
    let (mut out, mut err) = (io::stdout().lock(), io::stderr());
    match run(cli, &mut out, &mut err) {
        Ok(code) => ExitCode::from(code),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(err, "gpuprod: {error:#}");
            ExitCode::from(failed)
        }
    }
}
