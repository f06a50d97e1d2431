//! The vocabulary of gpuprod: what was newly read of a node at an instant.
//!
//! A [`Tick`] is sparse. Per [`Source`] it holds a [`Sample`] only when that source was read since the tick
//! before, and each sample carries its own time. Recordings are ticks, one JSON object per line, so every type
//! here is also a file format: fields are added, never renamed, and an absent field reads as
//! [`Missing::NotYet`].
//!
//! Two rules hold everywhere. No zero, no empty string and no stale value ever stands for "unknown": that is
//! what [`Reading`] is for. And quantities are integers with their unit in the type ([`units`]).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[macro_use]
mod text;
mod cpulist;
pub mod engine;
mod focus;
pub mod gpu;
pub mod host;
mod reading;
pub mod storage;
pub mod tenant;
#[cfg(test)]
mod tests;
mod tick;
pub mod topology;
pub mod units;
pub mod xid;

pub use cpulist::CpuList;
pub use focus::{Focus, local_port};
pub use reading::{Missing, Reading};
pub use text::is_unseen;
pub use tick::{BootId, Hung, Part, Sample, Source, Stamp, Tick};

/// Version of the recording format. A reader refuses a larger one with a clear message.
pub const SCHEMA: u32 = 1;
