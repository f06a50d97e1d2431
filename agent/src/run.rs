//! From the command line to the rooms: what `main` calls, with its output handed in.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use gpuprod_collectors::nvml::{latency, worker_main};
use gpuprod_collectors::{self as collectors, Host, Options, tree};
use gpuprod_snapshot::units::Nanos;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::cli::{Cli, Command, ConfigCommand, Sampling};
use crate::clock::Clock;
use crate::config::{self, Config};
use crate::fit::{Fit, For};
use crate::lease::{self, Progress};
use crate::pipeline::{Frame, Pipeline};
use crate::prices::PriceRule;
use crate::recording::{Header, Recording, Writer};
use crate::snapshot::Shown;
use crate::source::{Live, Stop};
use crate::topo::Topo;
use crate::{
    agent, catalogue, check, dashboards, demo, doctor, http, json, replay, rules_page, selftest, snapshot, socket,
    state_dir, text, top, topo,
};

/// What a command works with: config and flags together.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The config, flags applied.
    pub config: Config,
    /// The host's roots.
    pub host: Host,
    /// What collectors need.
    pub options: Options,
    /// Flags name another host or source than a running agent samples.
    pub own_look: bool,
}

impl Settings {
    /// Reads the config file and applies the flags.
    ///
    /// # Errors
    /// When the config file is wrong.
    pub fn resolve(flags: &Sampling) -> Result<Self> {
        let mut config = Config::load(flags.config.as_deref())?;
        let own_look = flags.host_root.is_some() || flags.nvml_library.is_some() || !flags.engine.is_empty();
        if let Some(root) = &flags.host_root {
            config.sampling.host_root.clone_from(root);
        }
        if flags.nvml_library.is_some() {
            config.sampling.nvml_library.clone_from(&flags.nvml_library);
        }
        if !flags.engine.is_empty() {
            config.engines.clone_from(&flags.engine);
        }
        let root = &config.sampling.host_root;
        let host = Host::at(root).with_nvml(config.sampling.nvml_library.clone());
        anyhow::ensure!(
            tree::exists(&host.proc) || tree::exists(&host.sys),
            "{} has neither proc/ nor sys/: not the root of a host",
            root.display()
        );
        let options =
            Options { engines: config.engines.clone(), job_notes: config.tenants.notes.clone(), ..Options::default() };
        Ok(Self { config, host, options, own_look })
    }

    /// The same for a command that looks once, beside an agent that may be running.
    ///
    /// # Errors
    /// As for [`Settings::resolve`].
    pub fn one_shot(flags: &Sampling) -> Result<Self> {
        let mut settings = Self::resolve(flags)?;
        settings.options.state_dir = state_dir::one_shot(&settings.config.state_dir());
        // While the agent keeps its hands off the driver, so does every other command.
        let lent = !settings.own_look
            && socket::ask(&settings.config.socket_path()).is_ok_and(|frame| frame.own.lease.is_some());
        settings.options.nvml_released.store(lent, Ordering::Relaxed);
        Ok(settings)
    }

    /// The host's name, for people.
    #[must_use]
    pub fn host_name(&self) -> String {
        let name = tree::word(&self.host.proc.join("sys/kernel/hostname"));
        name.get().cloned().unwrap_or_else(|| "unknown".to_owned())
    }
}

/// Ticks of this host until stopped.
#[must_use]
pub fn live(settings: &Settings, stop: &Stop) -> Live {
    let sampling = &settings.config.sampling;
    Live::start(
        settings.host.clone(),
        collectors::all(&settings.options),
        sampling.period,
        sampling.deadline,
        Arc::clone(stop),
    )
}

/// Does what was asked; the code is the process's exit code.
///
/// # Errors
/// With the whole chain of causes; a broken pipe among them is no error of ours ([`is_broken_pipe`]).
pub fn run(cli: Cli, out: &mut dyn Write, err: &mut dyn Write) -> Result<u8> {
    match cli.command {
        Command::Agent { sampling } => {
            let signals = agent::Signals { stop: stop_flag(&[SIGTERM, SIGINT])?, reload: Stop::default() };
            flag::register(SIGHUP, Arc::clone(&signals.reload)).context("take over SIGHUP")?;
            agent::run(&sampling, &signals, err)?;
        }
        Command::Snapshot { sampling, only, json } => {
            let shown = Shown::of(snapshot::take(&Settings::one_shot(&sampling)?, &only));
            print(out, json, &shown, |shown| snapshot::table(&shown.tick))?;
        }
        Command::Check { sampling, time, json } => {
            let settings = Settings::one_shot(&sampling)?;
            let report = checked(&settings, time, err)?;
            print(out, json, &report, check::page)?;
            return Ok(report.node.level.code());
        }
        Command::Fit { sampling, format, unfit_on, whom } => {
            // Whatever goes wrong here is "cannot tell": a node is not drained for a typing error in a config.
            let fit =
                fitted(&sampling, whom, err).unwrap_or_else(|error| Fit::unknown(&text::masked(&format!("{error:#}"))));
            let (told, code) = fit.told(format, &unfit_on);
            out.write_all(told.as_bytes())?;
            out.flush()?;
            return Ok(code);
        }
        Command::Topo { sampling, json } => {
            let tick = snapshot::take(&Settings::one_shot(&sampling)?, topo::SOURCES);
            print(out, json, &Topo::of(&tick), topo::page)?;
        }
        Command::Doctor { sampling, json } => {
            let tick = snapshot::take(&Settings::one_shot(&sampling)?, &[]);
            let diagnoses = doctor::diagnose(&tick);
            print(out, json, &diagnoses, |diagnoses| doctor::page(diagnoses))?;
        }
        Command::Selftest { sampling, only, real_time, json } => {
            let settings = Settings::one_shot(&sampling)?;
            let here = snapshot::take(&settings, &[]);
            let report = selftest::run(&settings.config, &here, &only, real_time)?;
            print(out, json, &report, selftest::page)?;
            return Ok(u8::from(report.failed > 0));
        }
        Command::Rules => out.write_all(rules_page::page().as_bytes())?,
        Command::Record { out: file, sampling, time } => {
            let ticks = record(&Settings::one_shot(&sampling)?, &file, time)?;
            writeln!(err, "{ticks} ticks in {}", file.display())?;
        }
        Command::Replay { file, policy, price, config, json } => {
            let policy = policy.map(|path| config::load_policy(&path)).transpose()?;
            let mut prices: Vec<PriceRule> = price.map(PriceRule::flat).into_iter().collect();
            if let Some(path) = config {
                prices = Config::load(Some(&path))?.prices;
            }
            let recording = Recording::open(&file)?;
            let (report, torn) = replay::priced(recording, policy.unwrap_or_default(), &prices)
                .with_context(|| format!("replay {}", file.display()))?;
            if let Some(note) = torn {
                writeln!(err, "note: {}: {note}", text::clean(&file.display().to_string()))?;
            }
            print(out, json, &report, replay::page)?;
        }
        Command::Top { sampling, attach, since, replay, once } => {
            let from = match (since, replay, attach) {
                (Some(since), ..) => Some(top::From::History(since)),
                (None, Some(path), _) => Some(top::From::File(path)),
                (None, None, attach) => attach.map(top::From::Attached),
            };
            top::command(Settings::one_shot(&sampling)?, from, once, (out, err))?;
        }
        Command::ReleaseGpu { config, time } => return ordered(config.as_deref(), Some(time), out),
        Command::ResumeGpu { config } => return ordered(config.as_deref(), None, out),
        Command::Demo { list: true, .. } => out.write_all(demo::list().as_bytes())?,
        Command::Demo { scenario, once, .. } => demo::find(scenario.as_deref())?.run(once, &ends()?, out)?,
        Command::Report(flags) => flags.run(out, err)?,
        Command::Metrics { json } => {
            let metrics: Vec<_> = catalogue::all().collect();
            print(out, json, &metrics, |metrics| catalogue::names::table(metrics))?;
        }
        Command::Dashboards { dir, force } => out.write_all(dashboards::write(&dir, force)?.as_bytes())?,
        Command::Config { command } => configured(command, out)?,
        Command::NvmlWorker { library, latency: true, .. } => {
            out.write_all(latency(library).map_err(anyhow::Error::msg)?.as_bytes())?;
        }
        Command::NvmlWorker { library, lock, .. } => worker_main(library, lock)?,
    }
    out.flush()?;
    Ok(0)
}

/// How long `top --once` looks when no agent runs: two ticks give rates.
pub(crate) const TOP_TIME: Nanos = Nanos::from_secs(2);

/// Whatever a page holds of foreign text, it goes to the terminal clean.
fn print<T: Serialize>(out: &mut dyn Write, as_json: bool, value: &T, shown: impl FnOnce(&T) -> String) -> Result<()> {
    if as_json {
        json::to_writer(out, value)?;
    } else {
        out.write_all(text::clean_lines(&shown(value)).as_bytes())?;
    }
    out.flush()?;
    Ok(())
}

/// Set by these signals; the second signal ends the process at once.
fn stop_flag(signals: &[i32]) -> Result<Stop> {
    let stop: Stop = Arc::new(AtomicBool::new(false));
    for signal in signals {
        flag::register_conditional_shutdown(*signal, 1, Arc::clone(&stop))
            .and_then(|_| flag::register(*signal, Arc::clone(&stop)))
            .with_context(|| format!("take over signal {signal}"))?;
    }
    Ok(stop)
}

/// What ends a command that looks for a while; SIGHUP only where `nohup` has not switched it off.
pub(crate) fn ends() -> Result<Stop> {
    let status = tree::text(Path::new("/proc/self/status")).unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    if ignored & 1 == 0 { stop_flag(&[SIGTERM, SIGINT, SIGHUP]) } else { stop_flag(&[SIGTERM, SIGINT]) }
}

/// The running agent's frame, unless flags ask for an own look.
fn asked(settings: &Settings, err: &mut dyn Write) -> Result<Option<Frame<'static>>> {
    Ok(found(settings, err)?.map(|(_, frame)| frame))
}

/// The running agent's socket and its frame, unless flags ask for an own look.
pub(crate) fn found(settings: &Settings, err: &mut dyn Write) -> Result<Option<(PathBuf, Frame<'static>)>> {
    if settings.own_look {
        return Ok(None);
    }
    let mut paths: Vec<PathBuf> = vec![settings.config.socket_path()];
    let system = Path::new(state_dir::SYSTEM).join("gpuprod.sock");
    if settings.config.socket.path.is_none() && !paths.contains(&system) {
        paths.push(system);
    }
    for path in paths {
        match socket::ask(&path) {
            Ok(frame) if is_fresh(&frame, settings) => return Ok(Some((path, frame))),
            Ok(_) => {
                let _ = writeln!(err, "note: {}: the agent there has stopped to tick", path.display());
            }
            Err(socket::AskError::Nobody) => {}
            Err(error) => {
                let error = anyhow::Error::new(error);
                let _ = writeln!(err, "note: {}: {error:#}", path.display());
            }
        }
    }
    Ok(None)
}

/// Whether the agent's last tick is of this boot and at most three periods and two seconds old.
fn is_fresh(frame: &Frame<'_>, settings: &Settings) -> bool {
    let (then, now) = (&frame.known.stamp, Clock::new(&settings.host).stamp());
    then.boot_id == now.boot_id && now.boottime.saturating_sub(then.boottime) <= http::limit(frame.known.period)
}

/// Samples for a while through the pipeline and shows the last frame.
pub(crate) fn look<T>(settings: &Settings, time: Nanos, show: impl Fn(&Frame<'_>) -> T) -> Result<T> {
    let mut pipeline = Pipeline::new(settings.config.rules.policy()).with_tenancy(settings.config.tenancy());
    let mut last = None;
    let mut ticks = live(settings, &ends()?).for_time(time).peekable();
    while let Some(tick) = ticks.next() {
        let frame = pipeline.feed(&tick);
        if ticks.peek().is_none() {
            last = Some(show(&frame));
        }
    }
    last.context("stopped before the first tick")
}

fn checked(settings: &Settings, time: Nanos, err: &mut dyn Write) -> Result<check::Report> {
    if let Some(frame) = asked(settings, err)? {
        return Ok(check::report(&frame, check::By::Agent));
    }
    look(settings, time, |frame| check::report(frame, check::By::Alone))
}

/// Gives the agent an order about the GPUs and waits until it is carried out; 1 when it is not.
fn ordered(config: Option<&Path>, release: Option<Nanos>, out: &mut dyn Write) -> Result<u8> {
    let path = Config::load(config)?.socket_path();
    let asked = |what| format!("{what} {}", path.display());
    let lease = socket::order(&path, release).with_context(|| asked("ask the agent at"))?;
    let mut waited = Nanos(0);
    loop {
        let frame = socket::ask(&path).with_context(|| asked("ask the agent at"))?;
        let patience = ORDER_TIME.saturating_add(frame.known.period);
        let left = lease.until.saturating_sub(frame.known.stamp.boottime);
        match lease::progress(&frame, lease.since, release.is_some()) {
            Progress::Done(words) if release.is_some() => {
                writeln!(out, "released for {}: {words}", text::duration(left))?;
                return Ok(0);
            }
            Progress::Done(words) => {
                writeln!(out, "resumed: {words}")?;
                return Ok(0);
            }
            Progress::Stuck(words) if waited >= patience => {
                writeln!(out, "not done: {words}; the order stands and is carried out when the driver answers")?;
                return Ok(1);
            }
            Progress::NotYet if waited >= patience.saturating_add(frame.known.period) => {
                writeln!(out, "not done: the agent has not looked at the GPUs for {}", text::duration(waited))?;
                return Ok(1);
            }
            Progress::Stuck(_) | Progress::NotYet => {}
        }
        std::thread::sleep(Duration::from_nanos(ORDER_LOOK.0));
        waited = waited.saturating_add(ORDER_LOOK);
    }
}

/// A child that is in a slow call gets so long, and a tick.
const ORDER_TIME: Nanos = Nanos::from_secs(10);
const ORDER_LOOK: Nanos = Nanos::from_millis(200);

fn fitted(sampling: &Sampling, whom: For, err: &mut dyn Write) -> Result<Fit> {
    let settings = Settings::one_shot(sampling)?;
    match asked(&settings, err)? {
        Some(frame) => Ok(Fit::of(&frame, check::By::Agent, whom)),
        None => look(&settings, TOP_TIME, |frame| Fit::of(frame, check::By::Alone, whom)),
    }
}

fn record(settings: &Settings, path: &Path, time: Nanos) -> Result<u64> {
    let stop = ends()?;
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    let written = || format!("write {}", path.display());
    let header = Header::new(settings.config.sampling.period, settings.host_name());
    // Flushed with every tick: a crash loses one second.
    let mut writer = Writer::new(BufWriter::new(file), &header, 1).with_context(written)?;
    let mut ticks = 0;
    for tick in live(settings, &stop).for_time(time) {
        writer.write(&tick).with_context(written)?;
        ticks += 1;
    }
    writer.finish().with_context(written)?;
    Ok(ticks)
}

fn configured(command: ConfigCommand, out: &mut dyn Write) -> Result<()> {
    match command {
        ConfigCommand::Check { file } => {
            let path = file.as_deref();
            Config::load(path)?;
            let name = path.unwrap_or(Path::new(config::DEFAULT_PATH));
            if path.is_none() && !tree::exists(name) {
                writeln!(out, "{} does not exist: all defaults", name.display())?;
            } else {
                writeln!(out, "{}: fine", name.display())?;
            }
        }
        ConfigCommand::Default => out.write_all(config::default_file().as_bytes())?,
        ConfigCommand::Schema => writeln!(out, "{}", config::schema()?)?,
    }
    Ok(())
}

/// Whether the reader of our output has gone away (`gpuprod … | head`): success.
#[must_use]
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
