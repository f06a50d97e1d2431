//! Forms in which frames leave the process.

pub mod prometheus;
