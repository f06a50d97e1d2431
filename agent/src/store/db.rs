//! The one SQLite file: opened, locked, brought forward, read once, and written in one transaction per commit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gpuprod_rules::{Judge, Ledger};
use gpuprod_snapshot::units::Nanos;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::changes::{Booked, Changes, size};
use super::failure::{Failure, Fatal, Reason, openable};
use super::schema::Whose;
use super::{Body, Place, schema, tables};
use crate::state_dir;
use crate::text::clip;

/// The file's name in the store's directory.
pub(super) const FILE: &str = "store.db";
/// Held for the life of the agent.
const LOCK: &str = "lock";
/// A predecessor that is just ending may hold the lock for so many looks more.
const LOOKS: u32 = 20;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Another program that reads the file may hold up a write for so long.
pub(super) const BUSY: Duration = Duration::from_secs(2);
/// The form of what was learnt. Raise it when a field means something else than before, or when what was learnt before
/// would mislead a rule of today: what has another number is dropped. A field that is new (with `#[serde(default)]`)
/// or gone needs no other number, nor does a release: own normals outlive an upgrade. Earlier builds wrote their version
/// behind it, after a slash.
const LEARNT: &str = "1";
/// Unpacked size of what was learnt, at most.
const LEARNT_CAP: usize = 64 << 20;

/// Why a file was not opened.
#[derive(Debug)]
pub(super) enum Refused {
    Fatal(Fatal),
    Failure(Failure),
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// What an earlier process left.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) booked: Option<Booked>,
    pub(super) learnt: Option<Box<Judge>>,
    /// Why what was learnt could not be taken over.
    pub(super) unread: Option<String>,
    /// The largest id of the queue.
    pub(super) last_id: i64,
}

/// An open file.
#[derive(Debug)]
pub(super) struct Db {
    connection: Connection,
    /// Bytes of the queue in the file.
    pub(super) outbox_bytes: u64,
}

/// Makes the directory and takes its lock.
pub(super) fn lock(dir: &Path) -> Result<File, Refused> {
    state_dir::make(dir).map_err(|error| Failure::io("the store's directory (store.dir)", &error))?;
    let path = dir.join(LOCK);
    let open = || {
        openable(&path)
            .and_then(|()| OpenOptions::new().create(true).truncate(false).write(true).mode(0o640).open(&path))
    };
    let file = open().map_err(|error| Failure::io(&format!("open {}", path.display()), &error))?;
    for look in 0..LOOKS {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) if look + 1 < LOOKS => std::thread::sleep(LOOK),
            Err(fs::TryLockError::WouldBlock) => {}
            Err(fs::TryLockError::Error(error)) => {
                return Err(Failure::io(&format!("lock {}", path.display()), &error).into());
            }
        }
    }
    Err(Refused::Fatal(Fatal::InUse(dir.to_owned())))
}

/// A side file of SQLite's.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Moves a damaged file out of the way, for a person to look at; of earlier ones the newest stays.
pub(super) fn set_aside(dir: &Path, now: Nanos) -> Result<PathBuf, Failure> {
    let path = dir.join(FILE);
    let aside = dir.join(format!("{FILE}.corrupt-{}", now.0 / 1_000_000_000));
    forget_older(dir);
    let failed = |error: &std::io::Error| Failure::io(&format!("rename {}", path.display()), error);
    for suffix in ["-journal", "-wal", "-shm", ""] {
        match fs::rename(beside(&path, suffix), beside(&aside, suffix)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(&error)),
            _ => {}
        }
    }
    Ok(aside)
}

#[expect(clippy::disallowed_methods, reason = "the store's own directory, on the thread that may wait")]
fn forget_older(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let prefix = format!("{FILE}.corrupt-");
    // A file and what stood beside it have the same time in their names.
    let time = |path: &Path| {
        let rest = path.file_name()?.to_str()?.strip_prefix(&prefix)?;
        rest.split('-').next()?.parse::<u64>().ok()
    };
    let files: Vec<(u64, PathBuf)> =
        entries.flatten().map(|entry| entry.path()).filter_map(|path| Some((time(&path)?, path))).collect();
    let newest = files.iter().map(|(time, _)| *time).max();
    for (_, path) in files.iter().filter(|(time, _)| Some(*time) != newest) {
        let _ = fs::remove_file(path);
    }
}

impl Db {
    /// Opens the file, or one in memory, and brings it to this version.
    pub(super) fn open(place: &Place) -> Result<Self, Refused> {
        let path = match place {
            Place::Dir(dir) => dir.join(FILE),
            Place::Memory => PathBuf::from(":memory:"),
        };
        let what = format!("open {}", path.display());
        let failed = |error: &rusqlite::Error| Failure::sql(&what, error);
        if let Place::Dir(_) = place {
            for suffix in ["", "-journal", "-wal", "-shm"] {
                let path = beside(&path, suffix);
                openable(&path).map_err(|error| Failure::io(&format!("open {}", path.display()), &error))?;
            }
            // SQLite would make it readable for everybody; its side files take the mode of this one.
            let open = OpenOptions::new().create(true).truncate(false).write(true).mode(0o640).open(&path);
            open.map_err(|error| Failure::io(&what, &error))?;
        }
        let mut connection = Connection::open(&path).map_err(|error| failed(&error))?;
        unmapped(&connection).map_err(|error| failed(&error))?;
        if let Whose::Foreign(found) = schema::whose(&connection).map_err(|error| failed(&error))? {
            return Err(Refused::Fatal(Fatal::Foreign { path, found }));
        }
        let found = schema::version(&connection).map_err(|error| failed(&error))?;
        let known = i64::try_from(schema::VERSION).unwrap_or(i64::MAX);
        if found > known {
            return Err(Refused::Fatal(Fatal::Newer { path, found, known }));
        }
        prepare(&mut connection).map_err(|error| failed(&error))?;
        let lack = match found {
            ..0 => Some(format!("its version, {found},")),
            _ => schema::lacks(&connection).map_err(|error| failed(&error))?,
        };
        if let Some(lack) = lack {
            let what = format!("{what}: {lack} is not as gpuprod made it");
            return Err(Failure { reason: Reason::Corrupt, what }.into());
        }
        if let Place::Dir(_) = place {
            // The index of a WAL that is no more: SQLite leaves it, since it was not used here.
            let _ = fs::remove_file(beside(&path, "-shm"));
        }
        let bytes: i64 = connection
            .query_row("SELECT coalesce(sum(length(body)), 0) FROM outbox", [], |row| row.get(0))
            .map_err(|error| failed(&error))?;
        Ok(Self { connection, outbox_bytes: u64::try_from(bytes).unwrap_or(0) })
    }

    /// What an earlier process left.
    pub(super) fn left(&self) -> Result<Left, Failure> {
        let failed = |error: &rusqlite::Error| Failure::sql("read the ledger", error);
        let row = self
            .connection
            .query_row("SELECT start_ns, body FROM ledger", [], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
            })
            .optional()
            .map_err(|error| failed(&error))?;
        let booked = row.map(|(start, body)| {
            let ledger: Ledger = serde_json::from_str(&body).map_err(|error| Failure {
                reason: Reason::Corrupt,
                what: format!("the ledger in the file is no ledger: {error}"),
            })?;
            Ok(Booked { ledger: Arc::new(ledger), start: Nanos(u64::try_from(start).unwrap_or(0)) })
        });
        let last_id = self
            .connection
            .query_row("SELECT coalesce(max(id), 0) FROM outbox", [], |row| row.get(0))
            .map_err(|error| failed(&error))?;
        let (learnt, unread) = match self.learnt() {
            Ok(learnt) => (learnt, None),
            Err(why) => (None, Some(why)),
        };
        Ok(Left { booked: booked.transpose()?, learnt, unread, last_id })
    }

    /// What was learnt, or why it cannot be read: it is learnt anew then, and nothing else waits for it.
    fn learnt(&self) -> Result<Option<Box<Judge>>, String> {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?));
        let row = self.connection.query_row("SELECT version, body FROM learnt", [], read).optional();
        let Some((form, body)) = row.map_err(|error| error.to_string())? else { return Ok(None) };
        let form = form.split('/').next().unwrap_or_default();
        if form != LEARNT {
            return Err(format!("it has form {form}, and this gpuprod reads {LEARNT}"));
        }
        let text = zstd::bulk::decompress(&body, LEARNT_CAP).map_err(|error| error.to_string())?;
        // Of a threshold that is gone it would list all that there are.
        serde_json::from_slice(&text).map_err(|error| clip(&error.to_string(), 100))
    }

    /// Makes all of it durable, or none of it. Gives the number of bodies that had to go for lack of room.
    pub(super) fn commit(&mut self, changes: &Changes, outbox_limit: u64, now: Nanos) -> Result<u64, Failure> {
        let failed = |error: &rusqlite::Error| Failure::sql("commit", error);
        let mut bytes = self.outbox_bytes;
        let all = self.connection.transaction().map_err(|error| failed(&error))?;
        let dropped = write(&all, changes, &mut bytes, outbox_limit, now).map_err(|error| failed(&error))?;
        all.commit().map_err(|error| failed(&error))?;
        self.outbox_bytes = bytes;
        Ok(dropped)
    }

    /// The oldest bodies of the queue, without those that are gone.
    pub(super) fn oldest(&self, most: usize, gone: &BTreeSet<i64>) -> Result<Vec<Body>, Failure> {
        let failed = |error: rusqlite::Error| Failure::sql("read the queue", &error);
        let mut query =
            self.connection.prepare("SELECT id, created_ns, body FROM outbox ORDER BY id").map_err(failed)?;
        let rows = query.query_map([], |row| {
            let created: i64 = row.get(1)?;
            let body: Vec<u8> = row.get(2)?;
            Ok(Body { id: row.get(0)?, created: Nanos(u64::try_from(created).unwrap_or(0)), body: body.into() })
        });
        let wanted = |body: &Result<Body, _>| body.as_ref().map_or(true, |body| !gone.contains(&body.id));
        rows.map_err(failed)?.filter(wanted).take(most).collect::<Result<_, _>>().map_err(failed)
    }

    /// Every text of alert state.
    pub(super) fn alerts(&self) -> Result<BTreeMap<String, String>, Failure> {
        let failed = |error: rusqlite::Error| Failure::sql("read the alert state", &error);
        let mut query = self.connection.prepare("SELECT key, body FROM alerts").map_err(failed)?;
        let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }
}

/// Nothing of the file is ever mapped into memory: a page fault that waits for a disk holds the process's memory map,
/// and behind it every thread waits that maps, unmaps or faults. A WAL would be mapped (its index, `-shm`), unless the
/// file is locked for this connection alone: so is one that an older gpuprod left, until it is no WAL any more.
fn unmapped(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "mmap_size", 0)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")
}

fn prepare(connection: &mut Connection) -> rusqlite::Result<()> {
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "TRUNCATE", |row| row.get(0))?;
    if !matches!(mode.as_str(), "truncate" | "memory") {
        // Somebody reads an old file with its WAL.
        return Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY), None));
    }
    // From the next look on others may read between two commits.
    connection.pragma_update(None, "locking_mode", "NORMAL")?;
    // With FULL the truncated journal, which is the commit, is made durable too.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // 256 KiB: it writes a few rows every few seconds.
    connection.pragma_update(None, "cache_size", -256)?;
    schema::migrate(connection)
}

fn write(
    all: &Transaction<'_>,
    changes: &Changes,
    bytes: &mut u64,
    outbox_limit: u64,
    now: Nanos,
) -> rusqlite::Result<u64> {
    if let Some(Booked { ledger, start }) = &changes.booked {
        let body = serde_json::to_string(ledger.as_ref()).map_err(unwritable)?;
        all.execute(
            "INSERT OR REPLACE INTO ledger (one, start_ns, committed_ns, body) VALUES (1, ?1, ?2, ?3)",
            params![signed(start.0), signed(now.0), body],
        )?;
        tables::write(all, &changes.gains)?;
    }
    for (key, state) in &changes.alerts {
        match state {
            Some(body) => all.execute("INSERT OR REPLACE INTO alerts VALUES (?1, ?2)", params![key, body])?,
            None => all.execute("DELETE FROM alerts WHERE key = ?1", params![key])?,
        };
    }
    if let Some(judge) = &changes.learnt {
        let text = serde_json::to_vec(judge).map_err(unwritable)?;
        let body = zstd::bulk::compress(&text, 1).map_err(unwritable)?;
        all.execute("INSERT OR REPLACE INTO learnt VALUES (1, ?1, ?2, ?3)", params![LEARNT, signed(now.0), body])?;
    }
    for id in &changes.gone {
        remove(all, *id, bytes)?;
    }
    for body in &changes.bodies {
        let row = params![body.id, signed(body.created.0), body.body.as_ref()];
        all.execute("INSERT OR REPLACE INTO outbox VALUES (?1, ?2, ?3)", row)?;
        *bytes = bytes.saturating_add(size(body));
    }
    let mut dropped = 0;
    while *bytes > outbox_limit {
        let oldest: Option<i64> = all.query_row("SELECT min(id) FROM outbox", [], |row| row.get(0))?;
        let Some(oldest) = oldest else { break };
        remove(all, oldest, bytes)?;
        dropped += 1;
    }
    Ok(dropped)
}

fn remove(all: &Transaction<'_>, id: i64, bytes: &mut u64) -> rusqlite::Result<()> {
    let size: Option<i64> =
        all.query_row("DELETE FROM outbox WHERE id = ?1 RETURNING length(body)", [id], |row| row.get(0)).optional()?;
    *bytes = bytes.saturating_sub(size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0));
    Ok(())
}

/// SQLite's integers are signed; what is larger (292 years in nanoseconds) stays at the end.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unwritable(error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(error))
}

#[cfg(test)]
mod tests {
    use gpuprod_rules::Policy;
    use serde_json::{Value, json};

    use super::*;

    fn db() -> Db {
        let Ok(db) = Db::open(&Place::Memory) else { panic!("a store in memory") };
        db
    }

    /// What another process is left when this stood in the file.
    fn left(form: &str, change: fn(&mut Value)) -> Left {
        let mut judge = serde_json::to_value(Judge::new(Policy::default())).unwrap();
        change(&mut judge);
        let body = zstd::bulk::compress(judge.to_string().as_bytes(), 1).unwrap();
        let db = db();
        db.connection.execute("INSERT INTO learnt VALUES (1, ?1, 0, ?2)", params![form, body]).unwrap();
        db.left().unwrap()
    }

    #[test]
    fn what_was_learnt_outlives_a_release_and_not_another_form() {
        let as_it_is = |_: &mut Value| {};
        let with_more = |judge: &mut Value| judge["later"] = json!({"a": 1});
        let with_less = |judge: &mut Value| drop(judge.as_object_mut().unwrap().remove("node"));
        let broken = |judge: &mut Value| drop(judge.as_object_mut().unwrap().remove("signals"));
        for (form, change) in [
            ("1", as_it_is as fn(&mut Value)),
            ("1/0.0.1", as_it_is),
            ("1/99.0.0", as_it_is),
            ("1", with_more),
            ("1", with_less),
        ] {
            let left = left(form, change);
            assert!(left.learnt.is_some() && left.unread.is_none(), "{form}: {:?}", left.unread);
        }
        for (form, change, why) in
            [("2", as_it_is as fn(&mut Value), "form 2"), ("", as_it_is, "form "), ("1", broken, "signals")]
        {
            let left = left(form, change);
            assert!(left.learnt.is_none() && left.unread.as_ref().unwrap().contains(why), "{form}: {:?}", left.unread);
        }
        assert!(db().left().unwrap().unread.is_none(), "a fresh file has nothing to drop");
    }

    #[test]
    fn what_is_written_is_read() {
        let mut db = db();
        let changes = Changes { learnt: Some(Box::new(Judge::new(Policy::default()))), ..Changes::default() };
        db.commit(&changes, 1 << 20, Nanos(1)).unwrap();
        assert!(db.left().unwrap().learnt.is_some());
    }
}
