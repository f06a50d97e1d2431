//! What needs no host: laws, replay, catalogue.

#[path = "pure/laws.rs"]
mod laws;
