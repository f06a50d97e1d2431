//! What can go wrong with the files, and what it means for the agent.

use std::fmt;
use std::path::PathBuf;

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
    pub(super) fn io(what: &str, error: &std::io::Error) -> Self {
        let reason = match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Reason::Full,
            std::io::ErrorKind::PermissionDenied => Reason::Denied,
            std::io::ErrorKind::ReadOnlyFilesystem => Reason::ReadOnly,
            _ => Reason::Io,
        };
        Self { reason, what: format!("{what}: {error}") }
    }

    pub(super) fn sql(what: &str, error: &rusqlite::Error) -> Self {
        let reason = match error.sqlite_error_code() {
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
        Self { reason, what: format!("{what}: {error}{hint}") }
    }
}
