//! A `libnvidia-ml.so.1` without a GPU: NVML's C ABI, driven by a state file that may change while it runs.
//!
//! Two halves. The shared library is what a client loads (ours by `--nvml-library`, any other under the name
//! `libnvidia-ml.so.1` in `LD_LIBRARY_PATH`); it reads the file named by `GPUPROD_FAKE_NVML` and reads it again
//! whenever it changes. The Rust half is the same [`State`] with [`State::write`], for tests and scenarios.
//! `{"gpus":[{}]}` is a complete state: one idle H100.
//!
//! What is not modelled answers `NVML_ERROR_NOT_SUPPORTED`, as the real library does for what a board lacks.
//! With `GPUPROD_FAKE_NVML_COUNT` set, the number of calls per symbol is written to that file.
#![expect(unsafe_code, reason = "this is a C library: symbols without mangling, pointers from strangers")]

use std::path::PathBuf;

mod abi;
mod device;
mod fields;
mod gpm;
mod live;
mod mig;
mod process;
mod rest;
mod state;
mod system;

pub use state::{Ecc, Fault, Gpm, Gpu, Kind, Mig, Pcie, Process, State};

/// Environment variable that names the state file.
pub const STATE: &str = "GPUPROD_FAKE_NVML";
/// Environment variable that names the file for call counts.
pub const COUNT: &str = "GPUPROD_FAKE_NVML_COUNT";

/// The shared library as cargo built it beside the running test, example or program; nothing when this
/// executable was not built together with it.
#[must_use]
pub fn library() -> Option<PathBuf> {
    let exe = std::env::current_exe().ok()?;
    let dir = exe.parent()?;
    let places = [dir.to_path_buf(), dir.join("deps"), dir.join("../deps")];
    places.into_iter().map(|place| place.join("libgpuprod_fake_nvml.so")).find(|path| path.exists())
}
