//! The only file reader. Every error carries its path; every read has a cap; nothing is ever written.

#![expect(clippy::disallowed_methods, reason = "this is the room where files of the host are read")]

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::{CollectError, Missing, Reading};

/// No file that we read is larger on a sane host; a larger one is cut here and called malformed.
pub const CAP: u64 = 8 << 20;

/// Reads a whole file as text; bytes that are not UTF-8 become U+FFFD.
///
/// # Errors
/// Absent is `Unsupported`, forbidden is `Denied`, a device or process that went away is `Gone`, larger than
/// [`CAP`] is `Malformed`.
pub fn text(path: &Path) -> Result<String, CollectError> {
    // O_NONBLOCK: a pipe that somebody put in the place of a file must not hang us.
    let open = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path);
    let mut bytes = Vec::new();
    let read = open.and_then(|file| file.take(CAP + 1).read_to_end(&mut bytes));
    read.map_err(|error| failed("read", path, error))?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len > CAP) {
        return Err(CollectError::new(Missing::Malformed, format!("read {}: larger than {CAP} bytes", path.display())));
    }
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Reads a one-line attribute without its white space. Empty is `Gone`: the kernel prints nothing for what is
/// being taken apart.
#[must_use]
pub fn word(path: &Path) -> Reading<String> {
    match text(path) {
        Ok(text) if text.trim().is_empty() => Reading::Missing(Missing::Gone),
        Ok(text) => Reading::Value(text.trim().to_owned()),
        Err(error) => Reading::Missing(error.missing),
    }
}

/// Reads a one-line attribute that is one value; what does not parse is `Malformed`.
#[must_use]
pub fn value<T: FromStr>(path: &Path) -> Reading<T> {
    match word(path) {
        Reading::Value(word) => Reading::from_option(word.parse().ok(), Missing::Malformed),
        Reading::Missing(missing) => Reading::Missing(missing),
    }
}

/// Reads an attribute printed as `0x…`.
#[must_use]
pub fn hex(path: &Path) -> Reading<u32> {
    match word(path) {
        Reading::Value(word) => {
            let digits = word.strip_prefix("0x").unwrap_or(&word);
            Reading::from_option(u32::from_str_radix(digits, 16).ok(), Missing::Malformed)
        }
        Reading::Missing(missing) => Reading::Missing(missing),
    }
}

/// Names in a directory, sorted.
///
/// # Errors
/// As for [`text`].
pub fn names(path: &Path) -> Result<Vec<String>, CollectError> {
    let entries = std::fs::read_dir(path).map_err(|error| failed("list", path, error))?;
    let mut names: Vec<String> =
        entries.filter_map(Result::ok).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    Ok(names)
}

/// The target of a symbolic link, as it is written.
///
/// # Errors
/// As for [`text`].
pub fn link(path: &Path) -> Result<PathBuf, CollectError> {
    std::fs::read_link(path).map_err(|error| failed("read the link", path, error))
}

/// The directory that a path leads to after all links (only for trees of the kernel, which cannot hang).
///
/// # Errors
/// As for [`text`].
pub fn real(path: &Path) -> Result<PathBuf, CollectError> {
    std::fs::canonicalize(path).map_err(|error| failed("follow", path, error))
}

/// Whether there is something.
#[must_use]
pub fn exists(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

/// The reason in one word.
#[must_use]
pub fn missing(error: &io::Error) -> Missing {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Missing::Denied,
        Some(libc::ENODEV | libc::ESRCH | libc::ENXIO | libc::EBUSY | libc::EAGAIN | libc::EIO) => Missing::Gone,
        Some(libc::ETIMEDOUT) => Missing::TimedOut,
        _ => Missing::Unsupported,
    }
}

fn failed(verb: &str, path: &Path, error: io::Error) -> CollectError {
    CollectError {
        missing: missing(&error),
        tried: format!("{verb} {}", path.display()),
        hint: None,
        source: Some(Box::new(error)),
    }
}
