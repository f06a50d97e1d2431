//! The tables, version by version. A file of an earlier version is brought forward in one transaction; a later one is
//! left alone.

use std::collections::BTreeMap;

use rusqlite::{Connection, Result};

/// `PRAGMA application_id` of our files: "gpur".
pub(super) const APPLICATION: i64 = 0x6770_7572;

/// Step n brings version n to n + 1.
const STEPS: &[&str] = &[VERSION_1, VERSION_2, VERSION_3];

/// The version that this program writes.
pub(super) const VERSION: usize = STEPS.len();

/// - `ledger`: one row, the accounts in their serde form.
/// - `ledger_rows`: the same by hour; an empty tenant means that nobody could tell.
/// - `learnt`: one row, baselines and rule tables (JSON, zstd), and the number of their form (`version`).
const VERSION_1: &str = "
CREATE TABLE ledger (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    start_ns INTEGER NOT NULL,
    committed_ns INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE TABLE ledger_rows (
    hour INTEGER NOT NULL,
    unit TEXT NOT NULL,
    tenant TEXT NOT NULL,
    bucket TEXT NOT NULL,
    reason TEXT NOT NULL,
    weight_source TEXT NOT NULL,
    slices_whole INTEGER NOT NULL,
    slice_ns INTEGER NOT NULL,
    PRIMARY KEY (hour, unit, tenant, bucket, reason, weight_source, slices_whole)
) STRICT, WITHOUT ROWID;
CREATE TABLE alerts (key TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE outbox (id INTEGER PRIMARY KEY, created_ns INTEGER NOT NULL, body BLOB NOT NULL) STRICT;
CREATE TABLE learnt (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    version TEXT NOT NULL,
    saved_ns INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
";

/// `ledger_rows` by class too; what was booked before has none.
const VERSION_2: &str = "
ALTER TABLE ledger_rows RENAME TO ledger_rows_1;
CREATE TABLE ledger_rows (
    hour INTEGER NOT NULL,
    unit TEXT NOT NULL,
    tenant TEXT NOT NULL,
    class TEXT NOT NULL,
    bucket TEXT NOT NULL,
    reason TEXT NOT NULL,
    weight_source TEXT NOT NULL,
    slices_whole INTEGER NOT NULL,
    slice_ns INTEGER NOT NULL,
    PRIMARY KEY (hour, unit, tenant, class, bucket, reason, weight_source, slices_whole)
) STRICT, WITHOUT ROWID;
INSERT INTO ledger_rows
    SELECT hour, unit, tenant, 'unspecified', bucket, reason, weight_source, slices_whole, slice_ns FROM ledger_rows_1;
DROP TABLE ledger_rows_1;
";

/// What one tenant's use cost another; each GPU's energy; what tenants read and wrote. What was booked before is not there.
const VERSION_3: &str = "
CREATE TABLE external_rows (
    hour INTEGER NOT NULL,
    unit TEXT NOT NULL,
    tenant TEXT NOT NULL,
    causer TEXT NOT NULL,
    class TEXT NOT NULL,
    bucket TEXT NOT NULL,
    reason TEXT NOT NULL,
    weight_source TEXT NOT NULL,
    slices_whole INTEGER NOT NULL,
    slice_ns INTEGER NOT NULL,
    PRIMARY KEY (hour, unit, tenant, causer, class, bucket, reason, weight_source, slices_whole)
) STRICT, WITHOUT ROWID;
CREATE TABLE energy_rows (
    hour INTEGER NOT NULL,
    unit TEXT NOT NULL,
    tenant TEXT NOT NULL,
    class TEXT NOT NULL,
    microjoules INTEGER NOT NULL,
    PRIMARY KEY (hour, unit, tenant, class)
) STRICT, WITHOUT ROWID;
CREATE TABLE io_rows (
    hour INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    read_bytes INTEGER NOT NULL,
    written_bytes INTEGER NOT NULL,
    PRIMARY KEY (hour, tenant)
) STRICT, WITHOUT ROWID;
";

/// The version of a file; 0 for a fresh one.
pub(super) fn version(db: &Connection) -> Result<i64> {
    db.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Whose a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// One of ours.
    Ours,
    /// Nothing was ever written into it.
    Nobodys,
    /// Another program's, by its mark or its tables.
    Foreign(String),
}

/// Every file of ours has had the mark since version 1.
pub(super) fn whose(db: &Connection) -> Result<Whose> {
    let mark: i64 = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if mark == APPLICATION {
        return Ok(Whose::Ours);
    }
    let mut query = db.prepare("SELECT name FROM sqlite_schema ORDER BY name LIMIT 3")?;
    let names = query.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>>>()?;
    Ok(match (mark, names.as_slice()) {
        (0, []) => Whose::Nobodys,
        (0, names) => Whose::Foreign(format!("tables {}", names.join(", "))),
        (mark, _) => Whose::Foreign(format!("the mark of another program (application_id {mark})")),
    })
}

/// What a file of the present version lacks that it must have.
pub(super) fn lacks(db: &Connection) -> Result<Option<String>> {
    let mut model = Connection::open_in_memory()?;
    migrate(&mut model)?;
    let here = columns(db)?;
    Ok(columns(&model)?.into_iter().find(|(name, kind)| here.get(name) != Some(kind)).map(|(name, _)| name))
}

/// Every column of every table, with its type and place in the key.
fn columns(db: &Connection) -> Result<BTreeMap<String, (String, i64)>> {
    let mut query = db.prepare(
        "SELECT t.name || '.' || c.name, c.type, c.pk FROM sqlite_schema t JOIN pragma_table_info(t.name) c
         WHERE t.type = 'table'",
    )?;
    query.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?.collect()
}

/// Brings a file forward. All or nothing.
pub(super) fn migrate(db: &mut Connection) -> Result<()> {
    let from = usize::try_from(version(db)?).unwrap_or(VERSION);
    if from >= VERSION {
        return Ok(());
    }
    let all = db.transaction()?;
    for step in STEPS.iter().skip(from) {
        all.execute_batch(step)?;
    }
    all.pragma_update(None, "application_id", APPLICATION)?;
    all.pragma_update(None, "user_version", i64::try_from(VERSION).unwrap_or(i64::MAX))?;
    all.commit()
}
