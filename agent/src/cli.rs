//! Commands and flags. Data goes to stdout, everything else to stderr.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use gpuprod_rules::{RULES, RuleId};
use gpuprod_snapshot::Source;
use gpuprod_snapshot::units::Nanos;

use crate::config::duration;
use crate::fit::{Also, For, Format};
use crate::prices::Price;
use crate::report;
use crate::top::{Address, Since};

/// Was this GPU productive? If not, what starved it, and what did it cost?
#[derive(Debug, Parser)]
#[command(name = "gpuprod", version, max_term_width = 100, disable_help_subcommand = true, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 failed, the reason is on stderr; 3 wrong usage.\n\
`check` has its own: 0 fine, 1 warning, 2 critical, 3 cannot tell; `fit` those of whom it answers.";

const CHECK_HELP: &str = "Exit codes: 0 fine, 1 warning, 2 critical, 3 cannot tell or wrong usage.\n\
A running agent is asked first: it has baselines. Alone, `check` can only suspect: it exits with 1 at most.\n\
With --host-root, --nvml-library or --engine it always looks for itself.\n\n\
Examples:\n  gpuprod check\n  gpuprod check --for 30s --json\n  gpuprod check --engine http://127.0.0.1:8000/metrics";

const RELEASE_HELP: &str = "For root. Exit codes: 0 no process of gpuprod has the driver open; 1 the agent's child is stuck in the driver\n\
(the call and its age are said), or the agent could not be asked. A restart of the agent ends the lease.\n\n\
Example:\n  gpuprod release-gpu --for 10m && nvidia-smi --gpu-reset; gpuprod resume-gpu";

const FIT_HELP: &str = "A running agent is asked first; alone, `fit` can only suspect, and nothing is unfit.\n\
Exit codes: slurm 0 or 1 (unfit); npd 0, 1 (unfit), 2 (cannot tell); nagios 0, 1 (degraded), 2 (unfit), 3 (cannot tell);\n\
json as nagios. Wrong usage is \"cannot tell\": with slurm 0, since any other code drains the node.\n\n\
Examples:\n  gpuprod fit --format slurm\n  gpuprod fit --format npd --unfit-on degraded";

const SELFTEST_HELP: &str = "Nothing of this host is touched, and nobody but a listener on 127.0.0.1 is told.\n\
Exit codes: 0 every rule with a built-in fault fired, 1 one did not. `here` says whether the rule can speak on this node.\n\n\
Examples:\n  gpuprod selftest\n  gpuprod selftest --only squatter,io_stall --real-time --json";

const TOP_HELP: &str = "A running agent is shown; where none runs, `top` samples this host itself, and says so.\n\
Keys: e evidence, Tab section, arrows scroll, Space hold, ? help, q quit.\n\
Of a recording: Space pause, + - speed, left right 10 s, n next finding.\n\
NO_COLOR is honoured. Without a terminal (a pipe, TERM=dumb) it prints the page of --once.\n\n\
Examples:\n  gpuprod top\n  gpuprod top --attach http://node7:9749\n  gpuprod top --since 2h\n  gpuprod top --replay incident.ticks\n  gpuprod top --once";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Samples this node, serves /metrics and answers `check`, until it is asked to end
    #[command(after_help = "Without a config file: http://127.0.0.1:9749/metrics.\n\
        SIGTERM and SIGINT end it. SIGHUP reads the config file anew: rules, engines, labels, otlp and alerts change at\n\
        once, the rest waits for a restart, and a wrong file changes nothing.\n\n\
        Examples:\n  gpuprod agent\n  gpuprod agent --config /etc/gpuprod/gpuprod.yaml")]
    Agent {
        /// How the host is read.
        #[command(flatten)]
        sampling: Sampling,
    },
    /// Prints what can be read of this host now: what belongs into a bug report
    #[command(after_help = "Examples:\n  gpuprod snapshot\n  gpuprod snapshot --only md,block --json")]
    Snapshot {
        /// How the host is read.
        #[command(flatten)]
        sampling: Sampling,
        /// Only these sources
        #[arg(long, value_name = "SOURCE,...", value_delimiter = ',', value_parser = source)]
        only: Vec<Source>,
        /// The tick as JSON, as recordings hold it, and `derived`: PCI distances, links, array members
        #[arg(long)]
        json: bool,
    },
    /// One verdict per GPU and for the node, with the cause
    #[command(after_help = CHECK_HELP)]
    Check {
        /// How the host is read.
        #[command(flatten)]
        sampling: Sampling,
        /// How long to look when no agent runs
        #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
        time: Nanos,
        /// The verdicts as JSON
        #[arg(long)]
        json: bool,
    },
    /// Whether the next job should be placed here, for Slurm, node-problem-detector or a monitoring plugin
    #[command(after_help = FIT_HELP)]
    Fit {
        /// How the host is read.
        #[command(flatten)]
        sampling: Sampling,
        /// For whom
        #[arg(long, value_name = "FORM", default_value = "json")]
        format: Format,
        /// What is treated as unfit, too; by default nothing is, and "cannot tell" drains no node
        #[arg(long, value_name = "WHAT,...", value_delimiter = ',')]
        unfit_on: Vec<Also>,
        /// For which jobs: what costs batch a little time can be too much for serving
        #[arg(long = "for", value_name = "CLASS", default_value = "batch")]
        whom: For,
    },
    /// How PCI devices and NUMA nodes hang together, which links are degraded, what sits near what
    #[command(after_help = "Examples:\n  gpuprod topo\n  gpuprod topo --json")]
    Topo {
        /// How the host is read.
        #[command(flatten)]
        sampling: Sampling,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// What each source can and cannot see here, why, and what mends it
    #[command(after_help = "Examples:\n  gpuprod doctor\n  sudo gpuprod doctor --json")]
    Doctor {
        /// How the host is read.
        #[command(flatten)]
        sampling: Sampling,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Records this host into a file that `replay` reads
    #[command(after_help = "Example:\n  gpuprod record incident.ticks --for 10m")]
    Record {
        /// The file to write (`.ticks`: JSON lines, zstd)
        out: PathBuf,
        /// How the host is read.
        #[command(flatten)]
        sampling: Sampling,
        /// How long
        #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = duration::parse)]
        time: Nanos,
    },
    /// Judges a recording: its findings and the ledger, the same bytes each time
    #[command(
        after_help = "Examples:\n  gpuprod replay incident.ticks\n  gpuprod replay incident.ticks --policy strict.yaml --json"
    )]
    Replay {
        /// The recording
        file: PathBuf,
        /// Thresholds (the keys below rules.policy of the config file)
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        /// Money per GPU-hour: findings say what they cost
        #[arg(long, value_name = "NUMBER", value_parser = Price::parse, conflicts_with = "config")]
        price: Option<Price>,
        /// The same by the price list of a config file
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// The node on one screen: what is wrong, whose doing, since when, what it costs
    #[command(after_help = TOP_HELP)]
    Top {
        /// How the host is read.
        #[command(flatten)]
        sampling: Sampling,
        /// Show the agent there: its unix socket, or http://host:9749 (then without pids and users)
        #[arg(long, value_name = "ADDR", value_parser = Address::parse)]
        attach: Option<Address>,
        /// Go back in time: play the agent's history from then on (10m ago, or 2026-11-28T02:00:00Z)
        #[arg(long, value_name = "TIME", value_parser = Since::parse, conflicts_with_all = ["attach", "replay"])]
        since: Option<Since>,
        /// Play a recording
        #[arg(long, value_name = "FILE", conflicts_with = "attach")]
        replay: Option<PathBuf>,
        /// One plain page
        #[arg(long)]
        once: bool,
    },
    /// Plays a built-in recording: a RAID rebuild starves eight GPUs at 2 AM
    #[command(
        after_help = "The keys are those of `top --replay`. Without a terminal it prints the page of the decisive moment,\n\
        the findings and the ledger.\n\nExamples:\n  gpuprod demo\n  gpuprod demo --list\n  gpuprod demo | less"
    )]
    Demo {
        /// Which (`--list` names them)
        scenario: Option<String>,
        /// Name them
        #[arg(long)]
        list: bool,
        /// Print instead of playing
        #[arg(long)]
        once: bool,
    },
    /// Makes the running agent let go of the driver, and waits until it has: for a GPU reset, a driver upgrade, a change of MIG
    #[command(after_help = RELEASE_HELP)]
    ReleaseGpu {
        /// For how long, 1s to 24h; after that the agent takes the GPUs back by itself
        #[arg(long = "for", value_name = "TIME", value_parser = duration::parse)]
        time: Nanos,
        /// The agent's config file
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Makes the running agent take the GPUs back before the time is over
    #[command(after_help = "For root. Exit codes: 0 they are read again, 1 they are not.")]
    ResumeGpu {
        /// The agent's config file
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Productive and lost GPU-hours, and money, from the ledger that the agent keeps
    #[command(after_help = report::HELP)]
    Report(report::Flags),
    /// Whether each rule fires, and how long until the page: recorded faults through the real pipeline, to a local receiver
    #[command(after_help = SELFTEST_HELP)]
    Selftest {
        /// How the host is read.
        #[command(flatten)]
        sampling: Sampling,
        /// Only these rules
        #[arg(long, value_name = "RULE,...", value_delimiter = ',', value_parser = rule)]
        only: Vec<RuleId>,
        /// Play in real time what fires within 60 s; the rest is replayed as ever
        #[arg(long)]
        real_time: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Every rule: what it means, its thresholds, what keeps it silent, what it cannot tell (docs/rules.md)
    Rules,
    /// Every series: name, kind, unit, labels, help
    Metrics {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Writes out what is shipped beside: Grafana dashboard, Prometheus rules, Alertmanager example
    #[command(after_help = "Example:\n  gpuprod dashboards /etc/prometheus/gpuprod")]
    Dashboards {
        /// Where to; the directory is made
        dir: PathBuf,
        /// Replace files that differ
        #[arg(long)]
        force: bool,
    },
    /// The configuration file
    Config {
        /// What to do with it.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// The child that talks to NVML
    #[command(hide = true)]
    NvmlWorker {
        /// The driver's library.
        #[arg(long, value_name = "FILE")]
        library: Option<PathBuf>,
        /// Held for the life of the child.
        #[arg(long, value_name = "FILE")]
        lock: Option<PathBuf>,
        /// Print how long each call takes here, and end
        #[arg(long)]
        latency: bool,
    },
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Says what is wrong with a file, where, and what was probably meant
    Check {
        /// The file; by default the one that the agent would read
        file: Option<PathBuf>,
    },
    /// Prints the default file, every line commented
    Default,
    /// Prints every key with its type, default and help as JSON
    Schema,
}

/// Flags of every command that reads the host; they win over the config file.
#[derive(Clone, Debug, Default, Args)]
pub struct Sampling {
    /// Where proc/, sys/ and dev/ of the host are
    #[arg(long, value_name = "DIR")]
    pub host_root: Option<PathBuf>,
    /// The NVML library
    #[arg(long, value_name = "FILE")]
    pub nvml_library: Option<PathBuf>,
    /// Metrics page of an LLM engine, or of a training job that counts its steps; may be given again
    #[arg(long, value_name = "URL", value_parser = engine)]
    pub engine: Vec<String>,
    /// The config file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

fn source(word: &str) -> Result<Source, String> {
    let known = Source::ALL.iter().copied();
    known.clone().find(|source| source.as_str() == word).ok_or_else(|| {
        let names: Vec<&str> = known.map(Source::as_str).collect();
        format!("sources: {}", names.join(", "))
    })
}

fn rule(word: &str) -> Result<RuleId, String> {
    RuleId::ALL.iter().copied().find(|rule| rule.as_str() == word).ok_or_else(|| {
        let names: Vec<&str> = RULES.iter().map(|rule| rule.id.as_str()).collect();
        format!("rules: {}", names.join(", "))
    })
}

fn engine(url: &str) -> Result<String, String> {
    crate::config::sane_engine(url).map(|()| url.to_owned()).map_err(str::to_owned)
}
