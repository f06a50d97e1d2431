//! SIGHUP: the configuration is read anew while ticks go on. A file that is wrong leaves the one before in force.
//!
//! The file is read, and what came of it is said, by a thread of its own: the tick thread waits for no disk and no
//! terminal.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use gpuprod_snapshot::units::Nanos;

use crate::cli::Sampling;
use crate::config::{self, Config};
use crate::own::ConfigState;
use crate::run::Settings;
use crate::text;

/// What a new file changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The config to go on with: the new one, and of the old one what only a restart can change.
    pub config: Config,
    /// Keys that are taken over at once.
    pub live: Vec<String>,
    /// Keys that wait for a restart.
    pub restart: Vec<String>,
}

impl Change {
    /// From what is in force to what the file says.
    #[must_use]
    pub fn of(old: &Config, new: &Config) -> Self {
        let new_too = new.clone();
        let config = Config {
            engines: new_too.engines,
            labels: new_too.labels,
            otlp: new_too.otlp,
            alerts: new_too.alerts,
            rules: new_too.rules,
            tenants: crate::config::Tenants { notes: old.tenants.notes.clone(), ..new_too.tenants },
            classes: new_too.classes,
            prices: new_too.prices,
            ..old.clone()
        };
        Self { live: differing(old, &config), restart: differing(&config, new), config }
    }

    /// Whether a key of this section is taken over.
    #[must_use]
    pub fn touches(&self, section: &str) -> bool {
        let of = |key: &String| key.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        self.live.iter().any(of)
    }

    fn words(&self) -> String {
        let mut words = match self.live.as_slice() {
            [] => "config read: nothing to take over".to_owned(),
            keys => format!("config taken over: {}", keys.join(", ")),
        };
        if !self.restart.is_empty() {
            words.push_str(&format!("; waiting for a restart: {}", self.restart.join(", ")));
        }
        words
    }
}

fn differing(a: &Config, b: &Config) -> Vec<String> {
    let json = |config| serde_json::to_value(config).unwrap_or_default();
    let (a, b) = (json(a), json(b));
    let differs = |key: &String| {
        let place = format!("/{}", key.replace('.', "/"));
        a.pointer(&place) != b.pointer(&place)
    };
    config::keys().into_iter().map(|key| key.key).filter(differs).collect()
}

/// What the tick thread has to do.
#[derive(Debug)]
pub enum Step {
    /// Nothing.
    Rest,
    /// Somebody asked; the file is being read.
    Begun,
    /// It is no good: nothing changes.
    Refused,
    /// Go on with this.
    Taken(Box<Change>),
}

/// The side of the tick thread.
#[derive(Debug)]
pub struct Reload {
    flags: Sampling,
    asked: Arc<AtomicBool>,
    reading: Option<Receiver<Option<Box<Change>>>>,
    state: ConfigState,
}

impl Reload {
    /// `asked` is set by the signal; `now` is the time of the config in force (CLOCK_REALTIME).
    #[must_use]
    pub fn new(flags: Sampling, asked: Arc<AtomicBool>, now: Nanos) -> Self {
        Self { flags, asked, reading: None, state: ConfigState { taken: now, ..ConfigState::default() } }
    }

    /// What came of it so far.
    #[must_use]
    pub fn state(&self) -> &ConfigState {
        &self.state
    }

    /// Looks once per tick; never waits.
    pub fn step(&mut self, config: &Config, now: Nanos) -> Step {
        let Some(reading) = &self.reading else {
            if !self.asked.swap(false, Ordering::Relaxed) {
                return Step::Rest;
            }
            return match self.read(config.clone()) {
                Ok(reading) => {
                    self.reading = Some(reading);
                    Step::Begun
                }
                Err(_) => self.refused(),
            };
        };
        let change = match reading.try_recv() {
            Err(TryRecvError::Empty) => return Step::Rest,
            Err(TryRecvError::Disconnected) | Ok(None) => {
                self.reading = None;
                return self.refused();
            }
            Ok(Some(change)) => change,
        };
        self.reading = None;
        self.state.reloads = self.state.reloads.saturating_add(1);
        self.state.refused = false;
        self.state.taken = now;
        self.state.restart_for.clone_from(&change.restart);
        Step::Taken(change)
    }

    fn refused(&mut self) -> Step {
        self.state.failures = self.state.failures.saturating_add(1);
        self.state.refused = true;
        Step::Refused
    }

    fn read(&self, old: Config) -> std::io::Result<Receiver<Option<Box<Change>>>> {
        let (tell, told) = sync_channel(1);
        let flags = self.flags.clone();
        let work = move || {
            let change = Settings::resolve(&flags).map(|settings| Box::new(Change::of(&old, &settings.config)));
            let words = match &change {
                Ok(change) => change.words(),
                Err(error) => format!("config not taken over, the one before stays in force: {error:#}"),
            };
            let _ = tell.send(change.ok());
            // A closed stderr is no reason for anything.
            let _ = writeln!(std::io::stderr(), "gpuprod: {}", text::clean_lines(&words));
        };
        std::thread::Builder::new().name("reload".to_owned()).spawn(work)?;
        Ok(told)
    }
}
