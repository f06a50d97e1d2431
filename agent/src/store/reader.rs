//! Reads the ledger's rows while an agent runs, or after it has ended; writes nothing.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gpuprod_rules::ledger::Account;
use gpuprod_rules::{Ledger, UnitId};
use rusqlite::ffi::SQLITE_READONLY_ROLLBACK;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};

use super::db::{BUSY, FILE, beside};
use super::failure::{code, openable, words};
use super::rows::Gains;
use super::schema::{self, Whose};
use super::tables;

pub use super::tables::Skipped;

/// Why the rows cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is none.
    #[error("no store in {}: does an agent keep one there? the key is store.dir, the flag --dir", .0.display())]
    Missing(PathBuf),
    /// A later version wrote it.
    #[error("the store {} has version {found}, and this gpuprod reads up to {}: use the newer gpuprod", path.display(), schema::VERSION)]
    Newer {
        /// Which file.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
    /// Whether there is one cannot be told.
    #[error("look for the store {}", path.display())]
    Unseen {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Nothing was written into it yet.
    #[error("the store {} is empty: no agent has committed anything there yet", .0.display())]
    Empty(PathBuf),
    /// It is another program's.
    #[error("{} is no store of gpuprod: it has {found}; the key is store.dir, the flag --dir", path.display())]
    Foreign {
        /// Which file.
        path: PathBuf,
        /// What it has.
        found: String,
    },
    /// It cannot be read.
    #[error("read the store {}: {why}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// What is in it is not as it was written.
    #[error(
        "the store {} is damaged ({why}): an agent that starts there sets it aside and begins a new one",
        path.display()
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// An agent or the machine died in a commit, and who reads may not take it back.
    #[error(
        "the store {} ends in a commit that was cut off, which only who may write there can take back: start the agent, or ask as root",
        .0.display()
    )]
    CutOff(PathBuf),
    /// A commit takes longer than a reader waits.
    #[error(
        "the store {} has been in a commit for {} s: does its disk answer? (gpuprod_self_store_lag_seconds); try again",
        .0.display(), BUSY.as_secs()
    )]
    Busy(PathBuf),
}

/// Whether a directory holds a store that can be seen.
#[must_use]
pub fn is_there(dir: &Path) -> bool {
    dir.join(FILE).exists()
}

/// The rows of every hour from this one on (hours since the Unix epoch), and those that speak in unknown words.
///
/// # Errors
/// When there is no store, a newer one, or one that cannot be read.
pub fn gains(dir: &Path, from: u64) -> Result<(Gains, Skipped), Error> {
    let path = dir.join(FILE);
    match path.try_exists() {
        Ok(true) => {}
        Ok(false) => return Err(Error::Missing(dir.to_owned())),
        Err(source) => return Err(Error::Unseen { path, source }),
    }
    openable(&path).map_err(|source| Error::Unseen { path: path.clone(), source })?;
    let failed = |error: rusqlite::Error| failed(&path, &error);
    let mut db = open(&path).map_err(failed)?;
    // Version and rows are those of one moment.
    let db = db.transaction().map_err(failed)?;
    match schema::whose(&db).map_err(failed)? {
        Whose::Ours => {}
        Whose::Nobodys => return Err(Error::Empty(path)),
        Whose::Foreign(found) => return Err(Error::Foreign { path, found }),
    }
    let found = schema::version(&db).map_err(failed)?;
    if usize::try_from(found).map_or(true, |found| found > schema::VERSION) {
        return Err(Error::Newer { path, found });
    }
    let found = usize::try_from(found).unwrap_or(0);
    tables::read(&db, found, i64::try_from(from).unwrap_or(i64::MAX)).map_err(failed)
}

fn failed(path: &Path, error: &rusqlite::Error) -> Error {
    let (path, why) = (path.to_owned(), words(error));
    if error.sqlite_error().is_some_and(|error| error.extended_code == SQLITE_READONLY_ROLLBACK) {
        return Error::CutOff(path);
    }
    match code(error) {
        Some(ErrorCode::DatabaseBusy) => Error::Busy(path),
        Some(ErrorCode::Unknown | ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Error::Damaged { path, why },
        _ => Error::Read { path, why },
    }
}

/// The product name of every unit that the accounts know one of.
///
/// # Errors
/// When the store cannot be read.
pub fn models(dir: &Path) -> Result<BTreeMap<String, String>, Error> {
    let path = dir.join(FILE);
    let failed = |error: rusqlite::Error| failed(&path, &error);
    let db = open(&path).map_err(failed)?;
    let body: Option<String> =
        db.query_row("SELECT body FROM ledger", [], |row| row.get(0)).optional().map_err(failed)?;
    let ledger: Ledger = body.and_then(|body| serde_json::from_str(&body).ok()).unwrap_or_default();
    let model = |(unit, account): (UnitId, Account)| Some((unit.0.to_string(), account.model?));
    Ok(ledger.accounts.into_iter().filter_map(model).collect())
}

/// Only to read, as long as that is possible. A commit that was cut off has to be taken back before anybody can read:
/// as the next agent would, so does a reader who may write. (One that an agent is at work on is waited for.)
fn open(path: &Path) -> rusqlite::Result<Connection> {
    let plain = format!("file:{}", path.as_os_str().as_bytes().iter().map(quoted).collect::<String>());
    let tried = looked(&plain, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let Some(error) = tried.as_ref().err().and_then(rusqlite::Error::sqlite_error) else { return tried };
    match error.code {
        ErrorCode::ReadOnly if error.extended_code == SQLITE_READONLY_ROLLBACK => {
            looked(&plain, OpenFlags::SQLITE_OPEN_READ_WRITE)
        }
        // A file as earlier versions kept it, with no agent at work: its side files are missing, and who may not write
        // the directory cannot make them. Nobody else writes either, and the file is read as it is.
        ErrorCode::CannotOpen if !beside(path, "-wal").exists() => {
            looked(&format!("{plain}?immutable=1"), OpenFlags::SQLITE_OPEN_READ_ONLY)
        }
        _ => tried,
    }
}

/// Opens the file and reads a first page of it: before that SQLite finds nothing wrong.
fn looked(uri: &str, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)?;
    db.busy_timeout(BUSY)?;
    schema::version(&db)?;
    Ok(db)
}

/// As the file's URI has it.
fn quoted(byte: &u8) -> String {
    if byte.is_ascii_alphanumeric() || b"/-_.~".contains(byte) {
        char::from(*byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}
