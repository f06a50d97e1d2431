//! The only file reader. Every error carries its path; every read has a cap; nothing is ever written.

#![expect(clippy::disallowed_methods, reason = "this is the room where files of the host are read")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
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
    read(path, open(path).map_err(|error| failed("read", path, error))?)
}

/// The same of a file that people write. A pipe in its place would be read as an empty file before its writer has
/// said a word, so what is no regular file is refused.
///
/// # Errors
/// As for [`text`]; what is no file is `Malformed`.
pub fn written(path: &Path) -> Result<String, CollectError> {
    let file = open(path).map_err(|error| failed("read", path, error))?;
    let kind = file.metadata().map_err(|error| failed("read", path, error))?.file_type();
    let found = match kind {
        kind if kind.is_file() => return read(path, file),
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a pipe",
        _ => "a device",
    };
    Err(CollectError::new(Missing::Malformed, format!("read {}: {found}, and no regular file", path.display())))
}

fn open(path: &Path) -> io::Result<File> {
    // O_NONBLOCK: a pipe that somebody put in the place of a file must not hang us.
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path)
}

fn read(path: &Path, file: File) -> Result<String, CollectError> {
    let mut bytes = Vec::new();
    file.take(CAP + 1).read_to_end(&mut bytes).map_err(|error| failed("read", path, error))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn what_people_write_is_a_file() {
        let scratch = Scratch::with(&[("file", "text"), ("dir/inside", "")]);
        let root = scratch.host().proc.with_file_name("");
        let pipe = root.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(text(&pipe).unwrap(), "", "a pipe reads as an empty file");
        for (path, found) in [(pipe, "a pipe"), (root.join("dir"), "a directory"), ("/dev/null".into(), "a device")] {
            let error = written(&path).unwrap_err();
            assert_eq!(error.missing, Missing::Malformed);
            let said = error.to_string();
            assert!(said.contains(found) && said.contains(path.to_str().unwrap()), "{said}");
        }
        assert_eq!(written(&root.join("file")).unwrap(), "text");
        scratch.link("link", "file");
        assert_eq!(written(&root.join("link")).unwrap(), "text", "a link to a file is one");
    }
}
