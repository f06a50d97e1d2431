//! The one table of configuration keys. The default file and the schema are printed from it; tests in
//! `tests/pure/config.rs` hold it against the types.

use std::fmt::Write as _;

use gpuprod_rules::{Policy, RULES};
use serde::Serialize;

/// One key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Key {
    /// Dotted path (`http.listen`).
    pub key: String,
    /// What may stand there.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its default, as it stands in the file.
    pub default: String,
    /// What it does.
    pub help: String,
}

type Row = (&'static str, &'static str, &'static str, &'static str);

const KEYS: &[Row] = &[
    (
        "state_dir",
        "path or null",
        "null",
        "Sockets and locks. null: /run/gpuprod for root and the service, else $XDG_RUNTIME_DIR/gpuprod, else /tmp/gpuprod-UID.",
    ),
    (
        "sampling.period",
        "duration",
        "1s",
        "Length of a tick, 100ms to 60s. A source of period k is read on every k-th tick.",
    ),
    (
        "sampling.deadline",
        "duration",
        "600ms",
        "Time of a tick in which sources may answer; what comes later appears in the next tick. At most nine tenths of the period.",
    ),
    (
        "sampling.host_root",
        "path",
        "/",
        "Where proc/, sys/ and dev/ of the host are: /host in a container. Flag: --host-root.",
    ),
    (
        "sampling.nvml_library",
        "path or null",
        "null",
        "The NVML library. null: the loader's search for libnvidia-ml.so.1. Flag: --nvml-library.",
    ),
    (
        "engines",
        "list of URLs",
        "[]",
        "Metrics pages of LLM engines, and of training jobs that count their steps (docs/steps.md), for example \
         [\"http://127.0.0.1:8000/metrics\"]. Flag: --engine.",
    ),
    ("http.enabled", "true or false", "true", "Serve /metrics, /healthz and /api/v1/frame."),
    (
        "http.listen",
        "address:port",
        "127.0.0.1:9749",
        "Where. Whoever reaches it reads all but pids, commands and users.",
    ),
    (
        "socket.enabled",
        "true or false",
        "true",
        "Serve the whole frame on a unix socket (mode 0660), which `gpuprod check` and `top` ask.",
    ),
    ("socket.path", "path or null", "null", "Where. null: gpuprod.sock in state_dir."),
    (
        "store.enabled",
        "true or false",
        "true",
        "Keep ledger, alert state, queue and history on disk. Without it counters restart with the process.",
    ),
    (
        "store.dir",
        "path or null",
        "null",
        "Where. null: $STATE_DIRECTORY of systemd, else /var/lib/gpuprod for root, else $XDG_STATE_HOME/gpuprod or ~/.local/state/gpuprod.",
    ),
    (
        "store.history_bytes",
        "integer",
        "1073741824",
        "Most that the history may take; the oldest goes first. 0: none is kept.",
    ),
    (
        "labels",
        "map of name to text",
        "{}",
        "Labels of the site, on alerts and OTLP resources, for example {cluster: a}.",
    ),
    (
        "otlp.endpoint",
        "URL or null",
        "null",
        "Where metrics are posted as OTLP/HTTP protobuf, for example http://127.0.0.1:4318/v1/metrics. null: nowhere.",
    ),
    ("otlp.interval", "duration", "10s", "How often, 1s to 1h."),
    (
        "otlp.headers",
        "map of name to text",
        "{}",
        "Headers of each request, for example {authorization: \"Bearer …\"}; they are never printed.",
    ),
    ("otlp.queue_bytes", "integer", "67108864", "Most that waits on disk while nobody answers; the oldest goes first."),
    (
        "alerts.alertmanagers",
        "list of URLs",
        "[]",
        "Alertmanagers to which alerts are posted directly, for example [\"http://127.0.0.1:9093\"]. The usual path is the shipped Prometheus rules; both at once make one alert, when `labels` equals Prometheus' external_labels.",
    ),
    ("alerts.node", "text or null", "null", "The node's name in alerts. null: its host name."),
    ("alerts.repeat", "duration", "1m", "How often a firing alert is posted again, 1s to 1h. It runs out after four."),
    (
        "alerts.resolve_after",
        "duration",
        "3m",
        "How long after a finding's end its alert is resolved, at most 1h: longer than Prometheus takes to see it, or the one path opens again what the other has closed. 0s without Prometheus.",
    ),
    (
        "alerts.max_pages_per_hour",
        "integer",
        "6",
        "Most pages of this node that begin within an hour; what is above goes as a ticket until there is room, and is counted.",
    ),
    (
        "alerts.silence",
        "list of windows",
        "[]",
        "Maintenance windows, without any alert, for example [{from: 2026-11-28T02:00:00Z, to: 2026-11-28T04:00:00+01:00}].",
    ),
    (
        "tenants.by",
        "auto | account | namespace | slice | user | none",
        "auto",
        "What counts as a tenant: Slurm account or Kubernetes namespace (from a job's note), innermost systemd slice, user. auto: the first that is known of account, namespace, the user's slice, the service. none: time is not split.",
    ),
    (
        "tenants.notes",
        "path or null",
        "null",
        "Folder in which a prolog or epilog leaves one file per job (docs/tenants.md). null: /run/gpuprod/jobs of the host. Only a restart takes it over.",
    ),
    (
        "tenants.exported",
        "true or false",
        "true",
        "Whether names of tenants may stand on series and on the page of any user.",
    ),
    (
        "classes",
        "list of lines",
        "[]",
        "What workloads are for; the first line that fits. Keys cgroup, account, partition, namespace (* is any text) and class: serving, batch, spot, dev. For example [{partition: \"gpu-low*\", class: batch}]. Without: serving where an engine's page is there, and labelled inferred.",
    ),
    (
        "prices",
        "list of lines",
        "[]",
        "Money per hour of a whole GPU; the first line that fits. Keys model (* is any text), class, per_gpu_hour, currency, from, to. For example [{model: \"*H100*\", per_gpu_hour: 2.5, currency: USD, from: 2026-01-01T00:00:00Z}].",
    ),
    (
        "rules.mode",
        "off | shadow | ticket | page",
        "shadow",
        "What a rule does when it fires, unless rules.modes names it. off: it is not evaluated. shadow: series only. ticket, page: an alert with this word as its label `mode`.",
    ),
    (
        "rules.modes",
        "map of rule to mode",
        "{}",
        "Modes of single rules, for example {raid_rebuild_impact: page}. Rules: ",
    ),
    (
        "rules.shapes",
        "list of shapes",
        "[{name: inference_1gpu, gpu_milli: 1000, hbm_mib: 16384, storage_mb_per_s: 100, io_cpu_percent: 20, cpu_milli: 4000, memory_mib: 32768}, {name: training_1gpu, gpu_milli: 1000, hbm_mib: 16384, storage_mb_per_s: 200, io_cpu_percent: 20, cpu_milli: 8000, memory_mib: 32768}]",
        "Jobs that should find room (stranded_capacity). Keys: name, gpu_milli (250 shares a GPU, 8000 takes eight), hbm_mib, storage_mb_per_s, storage_iops, io_cpu_percent, cpu_milli, memory_mib, pcie_mb_per_s, network_mb_per_s.",
    ),
    (
        "rules.allocations",
        "list of records",
        "[]",
        "Who has which GPU, where no reading tells (allocated_without_process), and which stands by and is no squatter, for example [{gpu: '0', owner: job 4711, class: batch}, {gpu: GPU-…, owner: llm, class: serving, standby: true}].",
    ),
    (
        "rules.kv_bytes",
        "list of models",
        "[]",
        "Bytes of a token in the KV cache, which no engine's page tells: 2 x layers x KV heads x head size x bytes of a number, for example [{model: '*Llama-3.1-8B*', per_token: 131072}]. The first line that fits counts.",
    ),
];

/// Words for thresholds: what each decides, why it has this value, and where that comes from.
const POLICY: &[(&str, &str)] = &[
    (
        "block_ns",
        "Length of a block: rules judge means over it. Means of 5 s take out the autocorrelation that makes change-point tests cry wolf: on single samples with AR(.8) the test below has 47 false alarms in 10,000 (calculated).",
    ),
    (
        "baseline_min_blocks",
        "Healthy blocks before an own baseline may be used: two minutes. The spread of fewer is a guess; more would leave a job's first minutes unjudged.",
    ),
    (
        "starved_warn",
        "Productivity deficit of a warning, in millionths. MLPerf Storage calls a GPU starved from 10 % on (accelerator utilization below .90); up to 15 % healthy engines scatter.",
    ),
    (
        "starved_critical",
        "Productivity deficit that is critical, in millionths: twice the warning, a GPU of three is lost. A choice; no public figure is known.",
    ),
    (
        "starved_clear",
        "Deficit below which starvation is over, in millionths: about half of what warns, so that a deficit around the limit is one finding.",
    ),
    (
        "starved_for_ns",
        "A deficit must last so long before a rule speaks: six blocks. A shift of three spreads is seen in five (median, calculated), and bursts of write-back and long prompts are over by then.",
    ),
    (
        "starved_clear_ns",
        "How long it must be good before the rule is silent again: twice the time to be told, so that a trouble that comes and goes is one finding.",
    ),
    (
        "deviation_z",
        "Distance from the own median, in spreads, that counts as a deviation. Four: 1 in 30,000 blocks of a normal distribution; against the heavy tails of real ones the change-point test stands beside it.",
    ),
    (
        "deviation_lasts_ns",
        "An alarm of the change-point test that has lasted so long counts from half of deviation_z on, where a cause passes the gates. A minute: twelve blocks, whose mean scatters a third as much as one of them.",
    ),
    (
        "cusum_slack",
        "Slack of the change-point test (CUSUM, Page 1954: k), in spreads: shifts below twice the slack are let pass. With 1 and an alarm at 12 there are 0 false alarms in 10,000 independent blocks and 0.5 with heavy tails (t3); with the textbook's .5 and 5 there are 65 to 414 (calculated).",
    ),
    (
        "cusum_alarm",
        "Alarm level of the change-point test (CUSUM: h), in spreads: see cusum_slack. With distances cut at 4 it takes at least four blocks.",
    ),
    (
        "disk_await_ratio",
        "Latency of a plain disk over its own baseline from which it counts as the cause. A reader that waits for it alone loses 1 - 1/1.5 = .33. Higher than for a sync: no event says when it began, and a disk answers later under more load of its reader's own.",
    ),
    (
        "flooded_await_ratio",
        "The same of a disk that mostly works for others: whose load it is, is known there. A reader that waits for it alone loses 1 - 1/1.2 = .17, a little more than what warns.",
    ),
    (
        "order_slack_blocks",
        "So many blocks may a cause begin after its effect and still be one: either beginning is known to one block.",
    ),
    (
        "coupling_rho",
        "Rank correlation (Spearman) between a cause's pressure and the deficit over 24 blocks. .5 comes by chance with p = .013 (two-sided); the correlation is one gate of several.",
    ),
    (
        "fault_hold_ns",
        "An Xid marks the GPU broken for so long after the last one: the driver repeats itself while a GPU is broken, and two scrapes of the usual 30 s must see it.",
    ),
    (
        "unread_holds_ns",
        "So long a source that does not answer keeps up what is blamed on what it tells of: silence clears nobody. Collectors that hang are given up and begun anew within minutes; what is not seen for longer is no longer known.",
    ),
];

/// All keys, in the order of the file.
#[must_use]
pub fn keys() -> Vec<Key> {
    let fixed = KEYS.iter().map(|(key, kind, default, help)| Key {
        key: (*key).to_owned(),
        kind: (*kind).to_owned(),
        default: (*default).to_owned(),
        help: if *key == "rules.modes" { format!("{help}{}.", rule_names()) } else { (*help).to_owned() },
    });
    fixed.chain(policy_keys()).collect()
}

fn rule_names() -> String {
    // In the order of precedence, as everywhere else.
    let names: Vec<&str> = RULES.iter().map(|rule| rule.id.as_str()).collect();
    names.join(", ")
}

/// The thresholds' names and defaults are those of the type itself.
fn policy_keys() -> Vec<Key> {
    let value = serde_json::to_value(Policy::default()).unwrap_or_default();
    let fields = value.as_object().cloned().unwrap_or_default();
    // In the order of the table, what it lacks after that: JSON objects are sorted by name.
    let place = |name: &str| POLICY.iter().position(|(known, _)| *known == name).unwrap_or(POLICY.len());
    let mut rows: Vec<_> = fields.into_iter().collect();
    rows.sort_by_key(|(name, _)| place(name));
    let key = |key: String, default: &serde_json::Value, help: &str| Key {
        kind: if default.is_f64() { "number" } else { "integer" }.to_owned(),
        default: default.to_string(),
        help: help.to_owned(),
        key: format!("rules.policy.{key}"),
    };
    let (sections, shared): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(_, value)| value.is_object());
    let shared = shared
        .iter()
        .map(|(name, default)| key(name.clone(), default, POLICY.get(place(name)).map_or("", |(_, help)| *help)));
    let own = Policy::ROOMS.iter().chain(Policy::SECTIONS).flat_map(|(rule, table)| {
        let section = sections.iter().find(|(name, _)| name == rule).map(|(_, section)| section);
        table
            .iter()
            .filter_map(move |row| Some((format!("{rule}.{}", row.key), section?.get(row.key)?, row.why.trim())))
    });
    shared.chain(own.map(|(name, default, why)| key(name, default, why))).collect()
}

/// The file in which every line is a comment and says the default.
#[must_use]
pub fn default_file() -> String {
    let mut text = String::from(
        "# gpuprod.yaml: every line shows a default; remove the leading # of what you change, and of the section\n\
         # above it. `gpuprod config check FILE` tells what is wrong with it.\n",
    );
    let mut open: Vec<String> = Vec::new();
    for key in keys() {
        let mut path: Vec<String> = key.key.split('.').map(str::to_owned).collect();
        let name = path.pop().unwrap_or_default();
        let shared = open.iter().zip(&path).take_while(|(a, b)| a == b).count();
        if shared == 0 || path.is_empty() {
            text.push('\n');
        }
        for (depth, section) in path.iter().enumerate().skip(shared) {
            let _ = writeln!(text, "#{:indent$}{section}:", "", indent = depth * 2);
        }
        let indent = path.len() * 2;
        for line in wrap(&key.help, 100) {
            let _ = writeln!(text, "#{:indent$}# {line}", "");
        }
        let _ = writeln!(text, "#{:indent$}{name}: {}", "", key.default);
        open = path;
    }
    text
}

/// The table as JSON.
///
/// # Errors
/// None that can happen; the serializer's type has one.
pub fn schema() -> serde_json::Result<String> {
    serde_json::to_string_pretty(&keys())
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
