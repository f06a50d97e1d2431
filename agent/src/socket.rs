//! The unix socket: who connects gets the newest frame as one line of JSON, and the connection is closed. Pids,
//! commands and users are in it, so its mode is 0660.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;

use crate::http::Shelf;
use crate::pipeline::Frame;
use crate::state_dir::{self, own_uid};

/// At most so many clients at a time.
const CLIENTS: usize = 32;
/// A client that does not read is dropped after this; an agent that does not answer is given up after it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest frame that a client accepts.
const FRAME_CAP: u64 = 64 << 20;

/// Why a running agent could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody is there.
    #[error("no agent listens there")]
    Nobody,
    /// It may not be asked by this user.
    #[error("an agent is there and this user may not ask it: run as root or join the socket's group")]
    Denied,
    /// Its directory is closed to this user: whether an agent is there cannot be told.
    #[error("cannot look into {}: permission denied; if an agent runs there, ask as its user or root", .0.display())]
    Closed(PathBuf),
    /// The socket belongs to another user than root or us.
    #[error("the socket belongs to another user (uid {0}): not believed")]
    Foreign(u32),
    /// It answered with an error, not at all, or with what this version does not understand.
    #[error("the agent there did not answer")]
    Answer(#[source] io::Error),
}

/// Binds the socket, in a directory that is made if need be. A socket left behind by a dead agent is replaced.
///
/// # Errors
/// When another agent answers there, or the directory or socket cannot be made.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(dir) = path.parent() {
        state_dir::make(dir)?;
    }
    if let Ok(meta) = fs::symlink_metadata(path) {
        if !meta.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is no socket is there"));
        }
        let in_use = |what| Err(io::Error::new(io::ErrorKind::AddrInUse, what));
        match connect(path).map_err(|error| (error.kind(), error)) {
            Ok(_) => return in_use("another gpuprod agent answers there"),
            Err((io::ErrorKind::TimedOut, _)) => return in_use("another gpuprod agent is there and does not answer"),
            Err((io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound, _)) => {}
            Err((_, error)) => return Err(error),
        }
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

/// Which file stands at a path: device and inode.
#[must_use]
pub fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Takes our socket away, unless another has taken its place. Nobody is asked: a busy or blocked listener must not
/// hold up the end.
pub fn release(path: &Path, ours: Option<(u64, u64)>) {
    if ours.is_some() && identity(path) == ours {
        let _ = fs::remove_file(path);
    }
}

/// Connecting to a stopped process whose backlog is full blocks without end, and std has no time-out for it: a thread
/// of its own waits, and is left behind after [`PATIENCE`].
fn patiently<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let (tell, told) = mpsc::channel();
    let wait = move || {
        let _ = tell.send(work());
    };
    thread::Builder::new().name("ask".to_owned()).spawn(wait)?;
    told.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")))
}

fn connect(path: &Path) -> io::Result<UnixStream> {
    let path = path.to_owned();
    patiently(move || UnixStream::connect(path))
}

/// Serves until the runtime ends.
///
/// # Errors
/// When the listener cannot be handed to the runtime.
pub async fn serve(listener: UnixListener, shelf: Shelf) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(CLIENTS));
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (Ok(place), Some(pages)) = (Arc::clone(&places).try_acquire_owned(), shelf.newest()) else {
            continue;
        };
        tokio::spawn(async move {
            let _place = place;
            let write = async {
                stream.write_all(&pages.whole).await?;
                stream.shutdown().await
            };
            let _ = tokio::time::timeout(PATIENCE, write).await;
        });
    }
}

/// Asks the agent that listens at a path for its newest frame.
///
/// # Errors
/// When none is there, or it may not or cannot answer.
pub fn ask(path: &Path) -> Result<Frame<'static>, AskError> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(AskError::Closed(path.parent().unwrap_or(path).to_owned()));
        }
        Err(_) => return Err(AskError::Nobody),
    };
    if meta.uid() != 0 && meta.uid() != own_uid() && own_uid() != 0 {
        return Err(AskError::Foreign(meta.uid()));
    }
    let stream = connect(path).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => AskError::Denied,
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => AskError::Nobody,
        _ => AskError::Answer(error),
    })?;
    let read = move || {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut line = Vec::new();
        BufReader::new(stream.take(FRAME_CAP)).read_until(b'\n', &mut line)?;
        Ok(line)
    };
    let line = patiently(read).map_err(AskError::Answer)?;
    if line.is_empty() {
        let what = "it closed the connection: it has had no tick yet";
        return Err(AskError::Answer(io::Error::new(io::ErrorKind::UnexpectedEof, what)));
    }
    serde_json::from_slice(&line).map_err(|error| AskError::Answer(error.into()))
}
