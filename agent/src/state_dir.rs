//! The directory of sockets and locks.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use gpuprod_collectors::nvml::LOCK;

/// Children of one-shot commands at a time. A child stuck in the driver keeps its place, so that a check that is
/// run every minute against a hung driver leaves this many stuck processes behind and no more.
const PLACES: u32 = 4;

/// Where the service's is. Only root can have made it there.
pub const SYSTEM: &str = "/run/gpuprod";

/// `/run/gpuprod` for root and for the service (`$RUNTIME_DIRECTORY` of systemd), else `$XDG_RUNTIME_DIR/gpuprod`, else
/// `/tmp/gpuprod-UID`.
#[must_use]
pub fn default() -> PathBuf {
    let uid = own_uid();
    if uid == 0 || std::env::var_os("RUNTIME_DIRECTORY").is_some_and(|dir| dir == SYSTEM) {
        return PathBuf::from(SYSTEM);
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) if Path::new(&dir).is_absolute() => PathBuf::from(dir).join("gpuprod"),
        _ => PathBuf::from(format!("/tmp/gpuprod-{uid}")),
    }
}

/// Where the store is by default: `$STATE_DIRECTORY` of systemd, else `/var/lib/gpuprod` for root, else
/// `$XDG_STATE_HOME/gpuprod` or `~/.local/state/gpuprod`.
#[must_use]
pub fn store() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // systemd joins several directories with colons; the first is ours.
    let given = std::env::var("STATE_DIRECTORY").ok();
    let given = given.as_deref().and_then(|dirs| dirs.split(':').next()).map(PathBuf::from);
    if let Some(dir) = given.filter(|dir| dir.is_absolute()) {
        return Some(dir);
    }
    if own_uid() == 0 {
        return Some(PathBuf::from("/var/lib/gpuprod"));
    }
    let home = || absolute("HOME").map(|home| home.join(".local/state"));
    absolute("XDG_STATE_HOME").or_else(home).map(|state| state.join("gpuprod"))
}

/// The user id of this process: the owner of its own directory in procfs.
#[must_use]
pub fn own_uid() -> u32 {
    fs::metadata("/proc/self").map_or(u32::MAX, |meta| meta.uid())
}

/// Makes the directory if need be.
///
/// # Errors
/// When it cannot be made, or belongs to another user: in /tmp anybody can make it before us, to read what we
/// serve or to answer in our name.
pub fn make(dir: &Path) -> io::Result<()> {
    let named = |error: io::Error| {
        let what = format!("make the directory {}: {error}", dir.display());
        io::Error::new(error.kind(), what)
    };
    DirBuilder::new().recursive(true).mode(0o750).create(dir).map_err(named)?;
    let owner = fs::symlink_metadata(dir).map_err(named)?.uid();
    if owner != own_uid() && owner != 0 {
        let what = format!("the directory {} belongs to another user (uid {owner})", dir.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(())
}

/// A directory for the NVML child's lock of a one-shot command, which must not wait for the agent's child. None
/// when no directory can be made: then there is no lock.
#[must_use]
pub fn one_shot(state: &Path) -> Option<PathBuf> {
    let places = (0..PLACES).map(|place| state.join(format!("once-{place}")));
    let mut made = places.filter(|dir| make(dir).is_ok()).peekable();
    let first = made.peek().cloned();
    made.find(|dir| free(&dir.join(LOCK))).or(first)
}

fn free(lock: &Path) -> bool {
    match File::open(lock) {
        Ok(file) => file.try_lock().is_ok(),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_place_is_left_alone_and_places_run_out() {
        let state = std::env::temp_dir().join(format!("gpuprod-places-{}", std::process::id()));
        let mut held = Vec::new();
        for place in 0..PLACES {
            let dir = one_shot(&state).unwrap();
            assert_eq!(dir, state.join(format!("once-{place}")));
            let file = File::create(dir.join(LOCK)).unwrap();
            file.lock().unwrap();
            held.push(file);
        }
        // All are stuck: the first is named again, and its child will say that the lock is held.
        assert_eq!(one_shot(&state), Some(state.join("once-0")));
        drop(held);
        assert_eq!(one_shot(&state), Some(state.join("once-0")));
        fs::remove_dir_all(&state).unwrap();
    }
}
