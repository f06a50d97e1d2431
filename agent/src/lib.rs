//! The binary's rooms: configuration, the one clock, the one pipeline, the metric catalogue, and everything that
//! shows or sends a frame.
//!
//! One way through: a [`source`] gives ticks (live or from a recording), [`pipeline::Pipeline::feed`] turns each
//! into a frame, and whatever is printed, served or sent is a projection of that frame.
#![forbid(unsafe_code)]

pub mod agent;
pub mod alerts;
pub mod catalogue;
pub mod check;
pub mod cli;
pub mod clock;
pub mod config;
pub mod cost;
pub mod dashboards;
pub mod demo;
pub mod derived;
pub mod doctor;
pub mod fit;
pub mod history;
pub mod http;
pub mod json;
pub mod lease;
pub mod own;
pub mod pipeline;
pub mod prices;
pub mod recording;
pub mod reload;
pub mod replay;
pub mod report;
pub mod rules_page;
pub mod run;
pub mod say;
pub mod seen;
pub mod selftest;
pub mod sink;
pub mod snapshot;
pub mod socket;
pub mod source;
pub mod state_dir;
pub mod status;
pub mod store;
pub mod systemd;
pub mod tell;
pub mod text;
pub mod top;
pub mod topo;
