//! The command line.

use std::path::PathBuf;

pub(crate) const USAGE: &str =
    "usage: starvebench [--seeds N] [--half tune|score] [--only PATTERN] [--file PATH.scn ...] [--weeks N]
                   [--first-week N] [--no-ablate] [--json] [--misses FILE]
--seeds N    seeds of each variant (12); even ones are for tuning thresholds, odd ones score
--half       which half is scored (score)
--only       variants whose name contains this (`none`: none), and no soak unless --weeks says so; no floor is checked
--file       scenario files of your own, scored on top (docs/scenarios.md)
--weeks N    GPU-weeks of the healthy soak (20); 0 leaves it out
--first-week the GPU-week at which the soak begins (0): a long one can be played in parts
--no-ablate  leaves out the ablations
--misses     also writes every miss and false alert to a file";

/// Which seeds count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    /// Even seeds: thresholds may be tuned on them.
    Tune,
    /// Odd seeds: what is reported.
    Score,
}

impl Half {
    /// Its label.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Tune => "tune",
            Self::Score => "score",
        }
    }
}

/// What was asked for.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) seeds: u64,
    pub(crate) half: Half,
    pub(crate) only: Option<String>,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) weeks: u64,
    pub(crate) first_week: u64,
    pub(crate) ablate: bool,
    pub(crate) json: bool,
    pub(crate) misses: Option<PathBuf>,
}

impl Options {
    pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            seeds: 12,
            half: Half::Score,
            only: None,
            files: Vec::new(),
            weeks: 20,
            first_week: 0,
            ablate: true,
            json: false,
            misses: None,
        };
        let (mut args, mut weeks) = (args.peekable(), None);
        while let Some(flag) = args.next() {
            match flag.as_str() {
                "--json" => options.json = true,
                "--no-ablate" => options.ablate = false,
                "--seeds" => options.seeds = number(&flag, args.next())?.max(2),
                "--weeks" => weeks = Some(number(&flag, args.next())?),
                "--first-week" => options.first_week = number(&flag, args.next())?,
                "--half" => {
                    options.half = match args.next().as_deref() {
                        Some("tune") => Half::Tune,
                        Some("score") => Half::Score,
                        _ => return Err(format!("--half is tune or score\n{USAGE}")),
                    }
                }
                "--only" => options.only = Some(value(&flag, args.next())?),
                "--misses" => options.misses = Some(value(&flag, args.next())?.into()),
                "--file" => {
                    options.files.push(value(&flag, args.next())?.into());
                    while let Some(path) = args.next_if(|next| !next.starts_with("--")) {
                        options.files.push(path.into());
                    }
                }
                _ => return Err(format!("{flag} is not understood\n{USAGE}")),
            }
        }
        options.weeks = weeks.unwrap_or(if options.only.is_some() { 0 } else { options.weeks });
        Ok(options)
    }

    /// The seeds of the half that is scored.
    pub(crate) fn scored(&self) -> impl Iterator<Item = u64> + use<> {
        let odd = self.half == Half::Score;
        (0..self.seeds).filter(move |seed| (seed % 2 == 1) == odd)
    }
}

fn value(flag: &str, value: Option<String>) -> Result<String, String> {
    value.ok_or_else(|| format!("{flag} needs a value\n{USAGE}"))
}

fn number(flag: &str, given: Option<String>) -> Result<u64, String> {
    let word = value(flag, given)?;
    word.parse().ok().filter(|n| *n <= 100_000).ok_or_else(|| format!("{flag}: `{word}` is no number up to 100000"))
}
