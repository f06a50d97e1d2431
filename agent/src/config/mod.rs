//! The configuration: one section per room, every key with a default, unknown keys are errors.
//!
//! [`keys()`] is the one table of keys; the default file and the schema are printed from it, and tests hold it
//! against the types below.

mod alerts;
pub mod duration;
mod error;
mod keys;
mod place;
mod sane;
mod tenants;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use gpuprod_collectors::tree;
use gpuprod_rules::{Allocation, ClassRule, Declared, KvBytes, Policy, RuleId, Shape, Tenancy};
use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::prices::{self, PriceRule};
use crate::{state_dir, text};
pub(crate) use alerts::instant;
pub use alerts::{Alerts, Silence};
pub use error::Error;
pub use keys::{Key, default_file, keys, schema};
pub use sane::engine as sane_engine;
pub use tenants::Tenants;

/// Read when no `--config` is given and it exists.
pub const DEFAULT_PATH: &str = "/etc/gpuprod/gpuprod.yaml";

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where sockets and locks live; by default [`state_dir::default`].
    pub state_dir: Option<PathBuf>,
    /// How the host is read.
    pub sampling: Sampling,
    /// Metrics pages of LLM engines, and of training jobs that count their steps.
    pub engines: Vec<String>,
    /// The HTTP server.
    pub http: Http,
    /// The unix socket.
    pub socket: Socket,
    /// What is kept on disk.
    pub store: Store,
    /// Labels of the site: on alerts and OTLP resources.
    #[serde(deserialize_with = "alerts::labels")]
    pub labels: BTreeMap<String, String>,
    /// Metrics by OTLP.
    pub otlp: Otlp,
    /// Alerts posted directly.
    pub alerts: Alerts,
    /// Whose the GPUs are.
    pub tenants: Tenants,
    /// What workloads are for.
    pub classes: Vec<ClassRule>,
    /// What a GPU-hour costs.
    pub prices: Vec<PriceRule>,
    /// Rules and thresholds.
    pub rules: Rules,
}

/// What is kept on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// Whether anything is; without it counters restart with the process.
    pub enabled: bool,
    /// Where.
    pub dir: Option<PathBuf>,
    /// Most that the history may take.
    pub history_bytes: u64,
}

impl Default for Store {
    fn default() -> Self {
        Self { enabled: true, dir: None, history_bytes: 1 << 30 }
    }
}

/// Metrics by OTLP over HTTP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Otlp {
    /// Where they are posted; none: nowhere.
    pub endpoint: Option<String>,
    /// How often.
    #[serde(with = "duration")]
    pub interval: Nanos,
    /// Headers of each request.
    pub headers: BTreeMap<String, String>,
    /// Most that waits on disk while nobody answers; the oldest goes first.
    pub queue_bytes: u64,
}

impl Default for Otlp {
    fn default() -> Self {
        Self { endpoint: None, interval: Nanos::from_secs(10), headers: BTreeMap::new(), queue_bytes: 64 << 20 }
    }
}

/// How the host is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Length of a tick.
    #[serde(with = "duration")]
    pub period: Nanos,
    /// Time of a tick in which collectors may answer; what comes later appears in the next.
    #[serde(with = "duration")]
    pub deadline: Nanos,
    /// Where the host's files are.
    pub host_root: PathBuf,
    /// The NVML library.
    pub nvml_library: Option<PathBuf>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            period: Nanos::from_secs(1),
            deadline: Nanos::from_millis(600),
            host_root: PathBuf::from("/"),
            nvml_library: None,
        }
    }
}

/// The HTTP server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Whether it runs.
    pub enabled: bool,
    /// Where it listens.
    pub listen: SocketAddr,
}

impl Default for Http {
    fn default() -> Self {
        Self { enabled: true, listen: SocketAddr::from(([127, 0, 0, 1], 9749)) }
    }
}

/// The unix socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Socket {
    /// Whether it is served.
    pub enabled: bool,
    /// Where; by default `gpuprod.sock` in the state directory.
    pub path: Option<PathBuf>,
}

impl Default for Socket {
    fn default() -> Self {
        Self { enabled: true, path: None }
    }
}

/// What a rule may do when it fires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Nothing.
    Off,
    /// Series and events, no alert.
    #[default]
    Shadow,
    /// A ticket.
    Ticket,
    /// A page.
    Page,
}

impl Mode {
    /// The word in config, series and alerts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Shadow => "shadow",
            Self::Ticket => "ticket",
            Self::Page => "page",
        }
    }
}

/// Rules and thresholds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// Of every rule that `modes` does not name.
    pub mode: Mode,
    /// Of single rules.
    pub modes: BTreeMap<RuleId, Mode>,
    /// Shapes of jobs that should find room.
    pub shapes: Vec<Shape>,
    /// Records of who has which GPU.
    pub allocations: Vec<Allocation>,
    /// Bytes of a token in the KV cache, by model.
    pub kv_bytes: Vec<KvBytes>,
    /// Thresholds.
    pub policy: Policy,
}

impl Default for Rules {
    fn default() -> Self {
        let Declared { shapes, allocations, kv_bytes } = Declared::default();
        Self { mode: Mode::default(), modes: BTreeMap::new(), shapes, allocations, kv_bytes, policy: Policy::default() }
    }
}

impl Rules {
    /// What a rule may do.
    #[must_use]
    pub fn mode_of(&self, rule: RuleId) -> Mode {
        self.modes.get(&rule).copied().unwrap_or(self.mode)
    }

    /// The thresholds, with the rules that are switched off.
    #[must_use]
    pub fn policy(&self) -> Policy {
        let off = RuleId::ALL.iter().copied().filter(|rule| self.mode_of(*rule) == Mode::Off).collect();
        let declared = Declared {
            shapes: self.shapes.clone(),
            allocations: self.allocations.clone(),
            kv_bytes: self.kv_bytes.clone(),
        };
        Policy { off, declared, ..self.policy.clone() }
    }
}

impl Config {
    /// Parses a file's text; `path` is for the message.
    ///
    /// # Errors
    /// With line, column and, for an unknown key or word, the nearest valid one.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        let config: Self = from_yaml(text, path)?;
        config.sane(path)?;
        Ok(config)
    }

    /// Reads the given file, or the default one if it exists, or the defaults.
    ///
    /// # Errors
    /// When a given file cannot be read, or a file is wrong.
    pub fn load(path: Option<&Path>) -> Result<Self, Error> {
        let default = Path::new(DEFAULT_PATH);
        let path = match path {
            Some(path) => path,
            None if tree::exists(default) => default,
            None => return Ok(Self::default()),
        };
        let text = tree::written(path).map_err(|error| Error::unreadable(path, &error))?;
        Self::parse(&text, path)
    }

    /// What types alone cannot say.
    fn sane(&self, path: &Path) -> Result<(), Error> {
        let Sampling { period, deadline, .. } = self.sampling;
        let wrong = |what: &str| Err(Error::plain(path, what.to_owned()));
        let instead = |value: Nanos| format!(", not {}", duration::print(value));
        if period < Nanos::from_millis(100) || period > Nanos::from_secs(60) {
            return wrong(&format!("sampling.period must lie between 100ms and 60s{}", instead(period)));
        }
        if deadline.0 == 0 || deadline.0 > period.0 / 10 * 9 {
            let must = "sampling.deadline must be above 0 and at most nine tenths of sampling.period";
            return wrong(&format!("{must}{}", instead(deadline)));
        }
        for url in &self.engines {
            if let Err(must) = sane::engine(url) {
                return wrong(&format!("engines: {} {must}", text::masked(&format!("{url:?}"))));
            }
        }
        sane::alerts(&self.alerts).map_err(|what| Error::plain(path, format!("alerts.{what}")))?;
        tenants::classes(&self.classes).map_err(|what| Error::plain(path, format!("classes, {what}")))?;
        prices::sane(&self.prices).map_err(|what| Error::plain(path, format!("prices, {what}")))?;
        if !self.rules.policy.off.is_empty() {
            return wrong("rules.policy.off is no key: switch a rule off with rules.modes, for example {RULE: off}");
        }
        if !self.rules.policy.without.is_empty() {
            return wrong("rules.policy.without is no key: gates are taken out by the bench alone");
        }
        sane::declared(&self.rules.shapes, &self.rules.allocations)
            .and_then(|()| sane::kv_bytes(&self.rules.kv_bytes))
            .map_err(|what| Error::plain(path, format!("rules.{what}")))?;
        sane::otlp(&self.otlp).map_err(|what| Error::plain(path, format!("otlp.{what}")))?;
        sane::policy(&self.rules.policy).map_err(|what| Error::plain(path, format!("rules.policy.{what}")))?;
        sane::texts(self).map_err(|what| Error::plain(path, what))
    }

    /// How the site names tenants and classes.
    #[must_use]
    pub fn tenancy(&self) -> Tenancy {
        Tenancy { by: self.tenants.by, classes: self.classes.clone() }
    }

    /// Where sockets and locks live.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.state_dir.clone().unwrap_or_else(state_dir::default)
    }

    /// Where ledger and history are kept; none when no place can be named (no home directory): the key says one.
    #[must_use]
    pub fn store_dir(&self) -> Option<PathBuf> {
        self.store.dir.clone().or_else(state_dir::store)
    }

    /// Where the unix socket is.
    #[must_use]
    pub fn socket_path(&self) -> PathBuf {
        let default = || self.state_dir().join("gpuprod.sock");
        self.socket.path.clone().unwrap_or_else(default)
    }
}

/// Reads a file with thresholds alone, as `replay --policy` takes it.
///
/// # Errors
/// As for [`Config::load`].
pub fn load_policy(path: &Path) -> Result<Policy, Error> {
    let text = tree::written(path).map_err(|error| Error::unreadable(path, &error))?;
    let policy: Policy = from_yaml(&text, path)?;
    if !policy.off.is_empty() {
        return Err(Error::plain(
            path,
            "off is no threshold: rules.modes of the config file switches rules off".to_owned(),
        ));
    }
    if !policy.without.is_empty() {
        return Err(Error::plain(path, "without is no threshold: gates are taken out by the bench alone".to_owned()));
    }
    sane::policy(&policy).map_err(|what| Error::plain(path, what))?;
    Ok(policy)
}

fn from_yaml<T: for<'de> Deserialize<'de> + Default>(text: &str, path: &Path) -> Result<T, Error> {
    if let Some(error) = Error::no_text(path, text) {
        return Err(error);
    }
    // A file in which everything is commented out is an empty document: all defaults.
    let parsed: Result<Option<T>, _> = serde_saphyr::from_str(text);
    parsed.map(Option::unwrap_or_default).map_err(|error| Error::yaml(path, text, &error))
}
