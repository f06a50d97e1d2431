//! The unix socket. A client may write one line: `frame`, `release NANOSECONDS` or `resume`; one that writes nothing
//! gets the newest frame after a moment, so that `nc -U` does. The answer is one line of JSON, and the connection is
//! closed. Pids, commands and users are in a frame, so the mode is 0660; to take the GPUs from the agent takes root.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use gpuprod_snapshot::units::Nanos;
use hyper::body::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;

use crate::clock::boottime;
use crate::http::Shelf;
use crate::json;
use crate::lease::Switch;
use crate::own::Lease;
use crate::pipeline::Frame;
use crate::state_dir::{self, own_uid};

/// At most so many clients at a time.
const CLIENTS: usize = 32;
/// A client that does not read is dropped after this; an agent that does not answer is given up after it.
const PATIENCE: Duration = Duration::from_secs(5);
/// So long a client may take to say what it wants.
const MOMENT: Duration = Duration::from_millis(200);
/// Longest request.
const LINE: u64 = 64;
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
    /// It does not do what it was told to.
    #[error("the agent refuses: {0}")]
    Refused(String),
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
pub async fn serve(listener: UnixListener, shelf: Shelf, gpus: Switch) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(CLIENTS));
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            // A fresh connection has room for a line. Nobody is waited for: what does not take it is dropped.
            let told = Told::Error(format!("busy: {CLIENTS} others are asking it, and no more at a time; ask again"));
            let _ = stream.into_std().map(|mut stream| stream.write(&json::line(&told)));
            continue;
        };
        let (shelf, gpus) = (shelf.clone(), gpus.clone());
        tokio::spawn(async move {
            let _place = place;
            let serve = async {
                let line = request(&mut stream).await;
                let root = stream.peer_cred().is_ok_and(|peer| peer.uid() == 0);
                let Some(answer) = answer(&line, root, &shelf, &gpus) else { return Ok(()) };
                stream.write_all(&answer).await?;
                stream.shutdown().await
            };
            let _ = tokio::time::timeout(PATIENCE, serve).await;
        });
    }
}

/// The client's line; empty when none comes in a moment.
async fn request(stream: &mut tokio::net::UnixStream) -> String {
    let mut line = Vec::new();
    let mut reader = tokio::io::BufReader::new(stream.take(LINE));
    match tokio::time::timeout(MOMENT, reader.read_until(b'\n', &mut line)).await {
        Ok(Ok(_)) => String::from_utf8_lossy(&line).trim().to_owned(),
        _ => String::new(),
    }
}

/// None before the first tick.
fn answer(line: &str, root: bool, shelf: &Shelf, gpus: &Switch) -> Option<Bytes> {
    let order = match line {
        "" | "frame" => return Some(shelf.newest()?.whole()),
        "resume" => Ok(None),
        _ => match line.strip_prefix("release ").map(str::parse::<u64>) {
            Some(Ok(time)) => Ok(Some(Nanos(time))),
            _ => Err("not understood: frame, release NANOSECONDS, resume".to_owned()),
        },
    };
    let order = order.and_then(|order| if root { Ok(order) } else { Err(NOT_ROOT.to_owned()) });
    let told = order.and_then(|order| match order {
        Some(time) => gpus.release(boottime(), time),
        None => Ok(gpus.resume(boottime())),
    });
    Some(json::line(&Told::from(told)).into())
}

const NOT_ROOT: &str = "only root may let go of the GPUs or take them back";

/// How a line begins that holds an error.
const REFUSAL: &[u8] = b"{\"error\":";

/// The answer to an order, or why nothing else is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Told {
    /// Since when it holds, and how long.
    Lease(Lease),
    /// Why not.
    Error(String),
}

impl From<Result<Lease, String>> for Told {
    fn from(told: Result<Lease, String>) -> Self {
        told.map_or_else(Self::Error, Self::Lease)
    }
}

/// Asks the agent that listens at a path for its newest frame.
///
/// # Errors
/// When none is there, or it may not or cannot answer.
pub fn ask(path: &Path) -> Result<Frame<'static>, AskError> {
    talk(path, "frame")
}

/// Tells the agent to let go of the GPUs for a while (`Some`) or to take them back; what it answers is when the order
/// was taken, not that it is done.
///
/// # Errors
/// When none is there, it may not or cannot answer, or refuses.
pub fn order(path: &Path, release: Option<Nanos>) -> Result<Lease, AskError> {
    let line = release.map_or_else(|| "resume".to_owned(), |time| format!("release {}", time.0));
    match talk(path, &line)? {
        Told::Lease(lease) => Ok(lease),
        Told::Error(why) => Err(AskError::Refused(why)),
    }
}

fn talk<T: DeserializeOwned>(path: &Path, request: &str) -> Result<T, AskError> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(AskError::Closed(path.parent().unwrap_or(path).to_owned()));
        }
        Err(_) => return Err(AskError::Nobody),
    };
    // The service's own user owns its socket, in a directory that only root can have made.
    let service = path.parent() == Some(Path::new(state_dir::SYSTEM));
    if meta.uid() != 0 && meta.uid() != own_uid() && own_uid() != 0 && !service {
        return Err(AskError::Foreign(meta.uid()));
    }
    let stream = connect(path).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => AskError::Denied,
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => AskError::Nobody,
        _ => AskError::Answer(error),
    })?;
    let request = format!("{request}\n");
    let read = move || {
        stream.set_read_timeout(Some(PATIENCE))?;
        // Whoever has closed already has perhaps answered before.
        let _ = (&stream).write_all(request.as_bytes());
        let mut line = Vec::new();
        BufReader::new(stream.take(FRAME_CAP)).read_until(b'\n', &mut line)?;
        Ok(line)
    };
    let line = patiently(read).map_err(AskError::Answer)?;
    if line.is_empty() {
        let what = "it closed the connection: it has had no tick yet";
        return Err(AskError::Answer(io::Error::new(io::ErrorKind::UnexpectedEof, what)));
    }
    // Whatever was asked, it may be refused; a frame does not begin so.
    if line.starts_with(REFUSAL)
        && let Ok(Told::Error(why)) = serde_json::from_slice(&line)
    {
        return Err(AskError::Refused(why));
    }
    serde_json::from_slice(&line).map_err(|error| AskError::Answer(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_too_many_is_told_so() {
        let dir = std::env::temp_dir().join(format!("gpuprod-busy-{}", std::process::id()));
        let path = dir.join("gpuprod.sock");
        let listener = bind(&path).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let serving = thread::spawn(move || {
            let gpus = Switch::new(Arc::default());
            let served =
                async { tokio::time::timeout(Duration::from_secs(3), serve(listener, Shelf::default(), gpus)).await };
            let _ = runtime.block_on(served);
        });
        // They say nothing, and keep their places for a moment.
        let held: Vec<_> = (0..CLIENTS).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let error = ask(&path).map(drop).unwrap_err();
        assert!(matches!(&error, AskError::Refused(why) if why.contains("busy")), "{error:?}");
        drop(held);
        serving.join().unwrap();
        fs::remove_dir_all(dir).unwrap();
    }
}
