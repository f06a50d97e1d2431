//! `gpuprod`: reads the command line, hands it to the library, prints what failed, once.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use gpuprod::cli::{Cli, Command};
use gpuprod::fit;
use gpuprod::run::{is_broken_pipe, run};
use gpuprod::text;

/// Wrong usage, and a `check` that could not look: "cannot tell", never "critical".
const UNKNOWN: u8 = 3;

/// Says of an error that it was met on stdout; its kind stays.
struct Stdout(io::StdoutLock<'static>);

impl Stdout {
    fn named(error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("write to stdout: {error}"))
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|error| Self::named(&error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(|error| Self::named(&error))
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // clap repeats the value that it refuses: a URL's password does not belong into a log.
            let text = error.render().to_string();
            if text::printable(&text) == text {
                let _ = error.print();
            } else {
                let _ = write!(io::stderr(), "{}", text::printable(&text));
            }
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
                return ExitCode::SUCCESS;
            }
            let args: Vec<String> = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
            let Some((told, code)) = fit::misused(&args, &text) else { return ExitCode::from(UNKNOWN) };
            let _ = io::stdout().write_all(told.as_bytes());
            return ExitCode::from(code);
        }
    };
    let failed = match cli.command {
        Command::Check { .. } => UNKNOWN,
        _ => 1,
    };
    let (mut out, mut err) = (Stdout(io::stdout().lock()), io::stderr());
    match run(cli, &mut out, &mut err) {
        Ok(code) => ExitCode::from(code),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(err, "gpuprod: {}", text::clean_lines(&format!("{error:#}")));
            ExitCode::from(failed)
        }
    }
}
