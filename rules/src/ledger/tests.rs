//! Single cases with figures worked out by hand; the laws over random schedules stand in `tests/pure/laws.rs`.
