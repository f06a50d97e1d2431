//! What can go wrong with the files, and what it means for the agent.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use rusqlite::ErrorCode;

/// Why an agent must not go on with this store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fatal {
    /// Its files are those of a later version.
    #[error(
        "the store {} has version {found} and this gpuprod ({}) knows up to {known}: use the newer gpuprod again, or move the file away to begin anew (store.dir)",
        path.display(),
        env!("CARGO_PKG_VERSION")
    )]
    Newer {
        /// Which file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The last version that is known here.
        known: i64,
    },
    /// It is another program's.
    #[error(
        "{} is no store of gpuprod: it has {found}; it is left as it is: give this agent another store.dir, or move the file away",
        path.display()
    )]
    Foreign {
        /// Which file.
        path: PathBuf,
        /// What it has.
        found: String,
    },
    /// Another agent writes there.
    #[error("the store {} is in use by another gpuprod agent: end that one, or give this one its own store.dir", .0.display())]
    InUse(PathBuf),
}

/// Why something was not written or read now. The word is a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// No room.
    Full,
    /// Not allowed.
    Denied,
    /// Mounted read-only.
    ReadOnly,
    /// The files are damaged.
    Corrupt,
    /// Another program holds the file.
    Busy,
    /// The device failed, or anything else.
    Io,
}

impl Reason {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Denied => "denied",
            Self::ReadOnly => "read_only",
            Self::Corrupt => "corrupt",
            Self::Busy => "busy",
            Self::Io => "io",
        }
    }
}

/// A failure that time may mend.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    /// What was tried, on what, and why it failed.
    pub(super) what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Failure {
    pub(super) fn io(what: &str, error: &io::Error) -> Self {
        let reason = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Reason::Full,
            io::ErrorKind::PermissionDenied => Reason::Denied,
            io::ErrorKind::ReadOnlyFilesystem => Reason::ReadOnly,
            _ => Reason::Io,
        };
        Self { reason, what: format!("{what}: {error}") }
    }

    pub(super) fn sql(what: &str, error: &rusqlite::Error) -> Self {
        let reason = match code(error) {
            // All that is asked is known beforehand: it can only fail on tables that are not as they were made.
            Some(ErrorCode::Unknown) => Reason::Corrupt,
            Some(ErrorCode::DiskFull) => Reason::Full,
            Some(ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => Reason::Denied,
            Some(ErrorCode::ReadOnly) => Reason::ReadOnly,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::ConstraintViolation) => {
                Reason::Corrupt
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Reason::Busy,
            _ => Reason::Io,
        };
        let hint = if reason == Reason::Busy { " (another program reads it for longer than 2 s)" } else { "" };
        Self { reason, what: format!("{what}: {}{hint}", words(error)) }
    }
}

/// SQLite's code, of a query that was refused too.
pub(super) fn code(error: &rusqlite::Error) -> Option<ErrorCode> {
    match error {
        rusqlite::Error::SqlInputError { error, .. } => Some(error.code),
        error => error.sqlite_error_code(),
    }
}

/// Without the query's text.
pub(super) fn words(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        error => error.to_string(),
    }
}

/// Whether a path can be opened as a file: a pipe in its place would be waited for without end. What is not there can.
pub(super) fn openable(path: &Path) -> io::Result<()> {
    let kind = match fs::metadata(path) {
        Ok(meta) => meta.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let found = match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    let what = format!("{found} stands in the place of the file; move it away, or name another store.dir");
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}
