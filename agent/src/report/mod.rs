//! `gpuprod report`: the ledger's rows as hours and money, by whatever one asks for. Every sum is a sum of integers:
//! what is printed adds up.

mod external;
mod page;
mod sum;
mod used;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use gpuprod_snapshot::units::Nanos;

use crate::clock;
use crate::config::{Config, duration};
use crate::{json, store, text};

pub use crate::prices::Price;
pub use external::{Charge, Externality, OfCause};
pub use page::{csv, table};
pub use sum::{By, Pricing, Report, Row, Times, sum, whole};
pub use used::Used;

/// Below `gpuprod report --help`.
pub const HELP: &str = "The running agent need not be asked: its store is read. Rows are whole hours (UTC) and hold all but the last\n\
seconds. Money is what was lost by tokens, steps or GPM, or faulted, squatted or stalled; what was lost by the proxy\n\
of power and utilization is a range from nothing to all of it; what was lost by utilization alone is not priced.\n\n\
Examples:\n  gpuprod report\n  gpuprod report --since 7d --by cause,hour --price 2.5\n  gpuprod report --by gpu,cause --format csv";

/// Its flags.
#[derive(Clone, Debug, Args)]
pub struct Flags {
    /// How far back; counted from the full hour before
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = duration::parse)]
    pub since: Nanos,
    /// Split by these: gpu, tenant, cause, class, hour
    #[arg(long, value_name = "WORD,...", value_delimiter = ',', default_value = "gpu", value_parser = By::parse)]
    pub by: Vec<By>,
    /// Money per GPU-hour, for every GPU; without it the price list of the config
    #[arg(long, value_name = "NUMBER", value_parser = Price::parse)]
    pub price: Option<Price>,
    /// In which form
    #[arg(long, value_name = "FORM", default_value = "table")]
    pub format: Form,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// The store; by default the one of the config, else the system's
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The config file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people
    Table,
    /// For spreadsheets
    Csv,
    /// For programs
    Json,
}

impl Flags {
    /// Reads the store and prints; what could not be read of it is said on `err`.
    ///
    /// # Errors
    /// When there is no store, it cannot be read, or the output is gone.
    pub fn run(&self, out: &mut dyn Write, err: &mut dyn Write) -> Result<()> {
        let config = Config::load(self.config.as_deref())?;
        let dir = self.dir.clone().map_or_else(|| place(&config), Ok)?;
        let now = clock::realtime();
        let hour = first_hour(now, self.since);
        let (gains, skipped) = store::reader::gains(&dir, hour)?;
        let mut report = whole(&gains, hour, &self.by, self.pricing(&config, &dir)?);
        report.rows_skipped = Some(skipped.rows).filter(|rows| *rows > 0);
        if let Some(word) = &skipped.word {
            let rows = skipped.rows;
            let word = text::clip(&text::clean(word), 64);
            writeln!(
                err,
                "note: {rows} rows are left out: they speak in words that this gpuprod does not know ({word})"
            )?;
        }
        match if self.json { Form::Json } else { self.format } {
            Form::Table => out.write_all(table(&report, now.0).as_bytes())?,
            Form::Csv => out.write_all(csv(&report).as_bytes())?,
            Form::Json => json::to_writer(out, &report)?,
        }
        Ok(())
    }

    /// The price of the flag, else the list of the config.
    fn pricing(&self, config: &Config, dir: &Path) -> Result<Pricing> {
        let list = if self.price.is_some() { Vec::new() } else { config.prices.clone() };
        let models = if list.is_empty() { BTreeMap::new() } else { store::reader::models(dir)? };
        Ok(Pricing { flat: self.price, list, models })
    }
}

/// The first hour that a report over so long a time shows, whole: rows are by the hour.
#[must_use]
pub fn first_hour(now: Nanos, since: Nanos) -> u64 {
    now.saturating_sub(since).0 / 3_600_000_000_000
}

/// The store that the config names; without a word there, the own one, or the system's when there is none.
///
/// # Errors
/// When no place can be named.
pub fn place(config: &Config) -> Result<PathBuf> {
    let own = config.store_dir().context("no directory for the store: there is no home directory; use --dir")?;
    let system = Path::new("/var/lib/gpuprod");
    let other = config.store.dir.is_none() && !store::reader::is_there(&own) && store::reader::is_there(system);
    Ok(if other { system.to_owned() } else { own })
}
