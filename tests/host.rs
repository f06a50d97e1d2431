//! What needs a host, real or made up: collectors, the mirror, the command line.

#[path = "host/agent.rs"]
mod agent;
#[path = "host/cli.rs"]
mod cli;
#[path = "host/mirror.rs"]
mod mirror;
