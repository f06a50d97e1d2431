//! What needs no host: laws, replay, catalogue.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test's helpers fail by panicking, read clocks and say what was skipped"
)]

#[path = "pure/alerts.rs"]
mod alerts;
#[path = "pure/branches.rs"]
mod branches;
#[path = "pure/catalogue.rs"]
mod catalogue;
#[path = "pure/config.rs"]
mod config;
#[path = "pure/dashboards.rs"]
mod dashboards;
#[path = "pure/device.rs"]
mod device;
#[path = "pure/fingerprint.rs"]
mod fingerprint;
#[path = "pure/fit.rs"]
mod fit;
#[path = "pure/fragmentation.rs"]
mod fragmentation;
#[path = "pure/laws.rs"]
mod laws;
#[path = "pure/node.rs"]
mod node;
#[path = "pure/otlp.rs"]
mod otlp;
#[path = "pure/productive.rs"]
mod productive;
#[path = "pure/queues.rs"]
mod queues;
#[path = "pure/recording.rs"]
mod recording;
#[path = "pure/replay.rs"]
mod replay;
#[path = "pure/report.rs"]
mod report;
#[path = "pure/resume.rs"]
mod resume;
#[path = "pure/rules_doc.rs"]
mod rules_doc;
#[path = "pure/steps.rs"]
mod steps;
#[path = "pure/tenants.rs"]
mod tenants;
#[path = "pure/top.rs"]
mod top;
#[path = "pure/topo.rs"]
mod topo;
#[path = "pure/two_am.rs"]
mod two_am;
#[path = "pure/used.rs"]
mod used;
#[path = "pure/verdicts.rs"]
mod verdicts;
#[path = "pure/vocabulary.rs"]
mod vocabulary;
#[path = "pure/whole.rs"]
mod whole;
