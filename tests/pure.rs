//! What needs no host: laws, replay, catalogue.

#[path = "pure/catalogue.rs"]
mod catalogue;
#[path = "pure/config.rs"]
mod config;
#[path = "pure/laws.rs"]
mod laws;
#[path = "pure/recording.rs"]
mod recording;
#[path = "pure/replay.rs"]
mod replay;
#[path = "pure/verdicts.rs"]
mod verdicts;
