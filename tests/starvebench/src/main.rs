//! The bench of the rules: labelled variants, drawn by seed, played through the agent's own pipeline, and scored.
//! `docs/validation.md` says what the figures are and what they do not prove.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a tool that prints its table")]

use std::process::ExitCode;

mod ablate;
mod alerts;
mod boot;
mod floors;
mod misses;
mod naive;
mod noise;
mod options;
mod pages;
mod play;
mod pool;
mod promise;
mod score;
mod soak;
mod table;
mod truth;
mod variant;

use options::Options;

fn main() -> ExitCode {
    if std::env::args().any(|arg| arg == "--help" || arg == "-h") {
        println!("{}", options::USAGE);
        return ExitCode::SUCCESS;
    }
    match Options::parse(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("starvebench: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether every floor holds.
fn run(options: &Options) -> Result<bool, String> {
    let recorded = noise::load()?;
    let variants = variant::load(options, &recorded)?;
    let jobs = variant::jobs(&variants, options);
    let policy = play::policy(&[])?;
    let plays = pool::map(&jobs, |job| match variants.get(job.variant) {
        Some(variant) => play::play(variant, job.seed, &policy),
        None => Err("no such variant".into()),
    })?;
    let mut score = score::Score::of(&variants, &jobs, &plays, options);
    if options.ablate {
        score.ablations = ablate::all(&variants, &jobs, &plays, options)?;
    }
    if options.weeks > 0 {
        score.soak = Some(soak::run(options, &recorded)?);
    }
    let whole = options.only.is_none();
    let floors = floors::check(&score)?;
    if let Some(path) = &options.misses {
        std::fs::write(path, table::misses(&score)).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if options.json {
        println!("{}", table::json(&score, &floors));
    } else {
        print!("{}", table::text(&score, &floors, whole));
    }
    Ok(!whole || floors.iter().all(|floor| floor.holds))
}
