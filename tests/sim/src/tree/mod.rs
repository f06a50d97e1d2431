//! A tick as a fake host: the files that a kernel in that state would show, as it would print them. Only what
//! collectors read is there.

mod block;
mod md;
mod node;
mod nvml;
mod proc;
mod sys;

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use gpuprod_snapshot::Tick;

pub use nvml::nvml_state;

/// Writes the host tree (`proc`, `sys`, `dev`) of a tick below a directory. The tick should hold all sources
/// ([`Tick::advance`] gathers them); what it lacks is left as it was. Each file is replaced in one step, so that
/// a reader sees the old text or the new one.
///
/// # Errors
/// When something cannot be written.
pub fn materialise(tick: &Tick, root: &Path) -> io::Result<()> {
    let tree = Tree { root: root.to_owned() };
    fs::create_dir_all(root)?;
    proc::write(tick, &tree)?;
    sys::write(tick, &tree)?;
    node::write(tick, &tree)?;
    block::write(tick, &tree)?;
    md::write(tick, &tree)
}

/// Where it is written.
pub(crate) struct Tree {
    root: PathBuf,
}

impl Tree {
    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.root.join(below.trim_start_matches('/'))
    }

    /// A file with a text.
    pub(crate) fn put(&self, below: &str, text: impl AsRef<str>) -> io::Result<()> {
        let path = self.path(below);
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        let new = self.root.join(".new");
        fs::write(&new, text.as_ref())?;
        fs::rename(&new, path)
    }

    /// A file with one value and the newline that the kernel writes behind it.
    pub(crate) fn line(&self, below: &str, value: impl std::fmt::Display) -> io::Result<()> {
        self.put(below, format!("{value}\n"))
    }

    /// A symbolic link.
    pub(crate) fn link(&self, below: &str, target: impl AsRef<Path>) -> io::Result<()> {
        let path = self.path(below);
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        let new = self.root.join(".new");
        let _ = fs::remove_file(&new);
        symlink(target, &new)?;
        fs::rename(&new, path)
    }

    /// Takes a directory away, if it is there.
    pub(crate) fn remove(&self, below: &str) -> io::Result<()> {
        match fs::remove_dir_all(self.path(below)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Names in a directory; none when it is not there.
    #[expect(clippy::disallowed_methods, reason = "a test's own files")]
    pub(crate) fn names(&self, below: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(below)).into_iter().flatten().filter_map(Result::ok);
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Adds lines to a file that are not in it yet.
    #[expect(clippy::disallowed_methods, reason = "a test's own files")]
    pub(crate) fn append(&self, below: &str, lines: &[String]) -> io::Result<()> {
        let mut text = fs::read_to_string(self.path(below)).unwrap_or_default();
        let known = text.len();
        for line in lines {
            if !text.lines().any(|old| old == line) {
                text.push_str(line);
                text.push('\n');
            }
        }
        if text.len() == known && self.path(below).exists() {
            return Ok(());
        }
        let path = self.path(below);
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        // In place: whoever follows the file holds it open.
        fs::write(path, text)
    }
}

/// The value of a source, if the tick has it.
macro_rules! value {
    ($tick:expr, $source:ident) => {
        $tick.$source.as_ref().and_then(|sample| sample.value.get())
    };
}
pub(crate) use value;
