//! The tables of what was gained by hour, written and read. What is new is added to what stands there.

use std::collections::BTreeMap;

use gpuprod_rules::{Bucket, Cause, Class, Overhead, UnitId, Unknown, WeightSource};
use rusqlite::{Connection, Row, Transaction, params};

use super::db::signed;
use super::rows::{EnergyKey, Gains, Key, Moved};

pub(super) fn write(all: &Transaction<'_>, gains: &Gains) -> rusqlite::Result<()> {
    let mut add = all.prepare(
        "INSERT INTO ledger_rows VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT DO UPDATE SET slice_ns = slice_ns + excluded.slice_ns",
    )?;
    for (key, amount) in &gains.rows {
        add.execute(params![
            signed(key.hour),
            key.unit.0.as_ref(),
            key.tenant.as_deref().unwrap_or(""),
            key.class.as_str(),
            key.bucket.as_str(),
            key.bucket.reason(),
            key.source.as_str(),
            key.slices_whole,
            signed(*amount),
        ])?;
    }
    let mut add = all.prepare(
        "INSERT INTO external_rows VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
         ON CONFLICT DO UPDATE SET slice_ns = slice_ns + excluded.slice_ns",
    )?;
    for ((key, causer), amount) in &gains.caused {
        add.execute(params![
            signed(key.hour),
            key.unit.0.as_ref(),
            key.tenant.as_deref().unwrap_or(""),
            causer,
            key.class.as_str(),
            key.bucket.as_str(),
            key.bucket.reason(),
            key.source.as_str(),
            key.slices_whole,
            signed(*amount),
        ])?;
    }
    let mut add = all.prepare(
        "INSERT INTO energy_rows VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT DO UPDATE SET microjoules = microjoules + excluded.microjoules",
    )?;
    for (key, amount) in &gains.energy {
        let tenant = key.tenant.as_deref().unwrap_or("");
        add.execute(params![signed(key.hour), key.unit.0.as_ref(), tenant, key.class.as_str(), signed(*amount)])?;
    }
    let mut add = all.prepare(
        "INSERT INTO io_rows VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE
         SET read_bytes = read_bytes + excluded.read_bytes, written_bytes = written_bytes + excluded.written_bytes",
    )?;
    for ((hour, tenant), moved) in &gains.io {
        let tenant = tenant.as_deref().unwrap_or("");
        add.execute(params![signed(*hour), tenant, signed(moved.read), signed(moved.written)])?;
    }
    Ok(())
}

/// Rows that speak in words that this version does not know: they are in no sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// How many.
    pub rows: u64,
    /// The first such word.
    pub word: Option<String>,
}

/// What stands there from an hour on, in a file of this version or an earlier one.
pub(super) fn read(db: &Connection, version: usize, from: i64) -> rusqlite::Result<(Gains, Skipped)> {
    // A file that the present version's agent has not opened yet has no class.
    let class = if version < 2 { "'unspecified'" } else { "class" };
    let sql = format!(
        "SELECT hour, unit, tenant, {class}, bucket, reason, weight_source, slices_whole, slice_ns
         FROM ledger_rows WHERE hour >= ?1"
    );
    let mut skipped = Skipped::default();
    let rows = collect(db, &sql, from, &mut skipped, |row| Ok(key(row)?.map(|key| (key, amount(row, 8)))))?;
    let mut gains = Gains { rows, ..Gains::default() };
    if version < 3 {
        return Ok((gains, skipped));
    }
    let sql = "SELECT hour, unit, tenant, class, bucket, reason, weight_source, slices_whole, slice_ns, causer
               FROM external_rows WHERE hour >= ?1";
    gains.caused = collect(db, sql, from, &mut skipped, |row| {
        let causer: String = row.get(9)?;
        Ok(key(row)?.map(|key| ((key, causer), amount(row, 8))))
    })?;
    let sql = "SELECT hour, unit, tenant, class, microjoules FROM energy_rows WHERE hour >= ?1";
    gains.energy = collect(db, sql, from, &mut skipped, |row| {
        let (tenant, unit) = (named(row.get(2)?), UnitId(row.get::<_, String>(1)?.into()));
        let class = class_of(row.get(3)?);
        let key = class.map(|class| EnergyKey { hour: amount(row, 0), unit, tenant, class });
        Ok(key.map(|key| (key, amount(row, 4))))
    })?;
    let sql = "SELECT hour, tenant, read_bytes, written_bytes FROM io_rows WHERE hour >= ?1";
    gains.io = collect(db, sql, from, &mut skipped, |row| {
        let moved = Moved { read: amount(row, 2), written: amount(row, 3) };
        Ok(Ok(((amount(row, 0), named(row.get(1)?)), moved)))
    })?;
    Ok((gains, skipped))
}

/// The error of a row is a word that is not known.
type Parsed<K, V> = Result<(K, V), String>;

fn collect<K: Ord, V>(
    db: &Connection,
    sql: &str,
    from: i64,
    skipped: &mut Skipped,
    parse: impl Fn(&Row<'_>) -> rusqlite::Result<Parsed<K, V>>,
) -> rusqlite::Result<BTreeMap<K, V>> {
    let mut query = db.prepare(sql)?;
    let mut found = query.query([from])?;
    let mut all = BTreeMap::new();
    while let Some(row) = found.next()? {
        match parse(row)? {
            Ok((key, value)) => drop(all.insert(key, value)),
            Err(word) => {
                skipped.rows += 1;
                skipped.word.get_or_insert(word);
            }
        }
    }
    Ok(all)
}

fn key(row: &Row<'_>) -> rusqlite::Result<Result<Key, String>> {
    let text = |place: usize| row.get::<_, String>(place);
    let (unit, tenant, class, bucket, reason, source) = (text(1)?, text(2)?, text(3)?, text(4)?, text(5)?, text(6)?);
    Ok((|| {
        Ok(Key {
            hour: amount(row, 0),
            unit: UnitId(unit.into()),
            tenant: named(tenant),
            class: class_of(class)?,
            bucket: self::bucket(&bucket, &reason).ok_or_else(|| format!("{bucket} {reason}"))?,
            source: WeightSource::ALL.iter().copied().find(|known| known.as_str() == source).ok_or(source)?,
            slices_whole: u32::try_from(amount(row, 7)).unwrap_or(1),
        })
    })())
}

/// A column that the schema holds to be an integer; never below zero.
fn amount(row: &Row<'_>, place: usize) -> u64 {
    row.get::<_, i64>(place).ok().and_then(|value| u64::try_from(value).ok()).unwrap_or(0)
}

fn named(tenant: String) -> Option<String> {
    Some(tenant).filter(|tenant| !tenant.is_empty())
}

fn class_of(word: String) -> Result<Class, String> {
    Class::ALL.iter().copied().find(|known| known.as_str() == word).ok_or(word)
}

fn bucket(word: &str, reason: &str) -> Option<Bucket> {
    let plain = [Bucket::Productive, Bucket::Headroom, Bucket::Idle, Bucket::Unallocated].into_iter();
    let overhead = Overhead::ALL.iter().copied().map(Bucket::Overhead);
    let unknown = Unknown::ALL.iter().copied().map(Bucket::Unknown);
    let lost = Cause::ALL.iter().copied().map(Bucket::Lost);
    plain.chain(overhead).chain(unknown).chain(lost).find(|known| known.as_str() == word && known.reason() == reason)
}
