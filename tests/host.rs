//! What needs a host, real or made up: collectors, the mirror, the command line.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test's helpers fail by panicking, read clocks and say what was skipped"
)]

#[path = "host/agent.rs"]
mod agent;
#[path = "host/alertmanager.rs"]
mod alertmanager;
#[path = "host/cli.rs"]
mod cli;
#[path = "host/history.rs"]
mod history;
#[path = "host/mirror.rs"]
mod mirror;
#[path = "host/otlp.rs"]
mod otlp;
#[path = "host/samples.rs"]
mod samples;
#[path = "host/selftest.rs"]
mod selftest;
#[path = "host/service.rs"]
mod service;
#[path = "host/store.rs"]
mod store;
#[path = "host/store_disk.rs"]
mod store_disk;
#[path = "host/top.rs"]
mod top;
