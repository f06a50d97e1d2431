//! The agent's end of the pipes to its NVML child.
#![expect(unsafe_code, reason = "poll has no safe form in std")]

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::names::{IDLE, call_of};
use super::wire::{Frames, Reply};
use crate::tree;

/// A running child.
#[derive(Debug)]
pub(super) struct Worker {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    frames: Frames,
    /// A request was sent and not answered yet.
    asked: bool,
}

/// What came of waiting.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The answer.
    Reply(Reply),
    /// Nothing yet: it is still in a call.
    Late,
    /// It closed its output: it has ended or is about to.
    Ended,
    /// It wrote what no child of ours writes.
    Malformed(String),
}

impl Worker {
    /// Starts one. Its standard error goes nowhere: a stuck child would keep the agent's open after the agent
    /// has ended, and whoever waits for the end of that output would wait for ever. Its process group is its
    /// own: Ctrl-C is meant for the agent, and killing a process inside a call can freeze a GPU.
    pub(super) fn spawn(program: &str, arguments: &[String]) -> io::Result<Self> {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("a child without pipes"));
        };
        Ok(Self { child, input, output, frames: Frames::default(), asked: false })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a request, unless one is still unanswered. One byte into an empty pipe never blocks.
    pub(super) fn ask(&mut self, request: u8) -> io::Result<()> {
        if !self.asked {
            self.input.write_all(&[request])?;
            self.asked = true;
        }
        Ok(())
    }

    /// Waits for the answer.
    #[expect(clippy::disallowed_methods, reason = "a deadline, not a time stamp")]
    pub(super) fn wait(&mut self, patience: Duration) -> Outcome {
        let start = std::time::Instant::now();
        let mut room = [0; 65536];
        loop {
            match self.frames.next() {
                Ok(Some(reply)) => {
                    self.asked = false;
                    return Outcome::Reply(reply);
                }
                Ok(None) => {}
                Err(words) => return Outcome::Malformed(words),
            }
            let left = patience.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Outcome::Late;
            }
            // Rounded up: with zero it would spin through the last millisecond.
            let left = i32::try_from(left.as_millis()).unwrap_or(i32::MAX).saturating_add(1);
            let mut poll = libc::pollfd { fd: self.output.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one structure, which lives through the call.
            if unsafe { libc::poll(&raw mut poll, 1, left) } <= 0 {
                continue;
            }
            match self.output.read(&mut room) {
                Ok(0) => return Outcome::Ended,
                Ok(count) => self.frames.push(room.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Outcome::Ended,
            }
        }
    }

    /// What it had still written before it closed its input.
    pub(super) fn last_words(&mut self) -> Outcome {
        match self.wait(Duration::from_millis(100)) {
            Outcome::Late => Outcome::Ended,
            outcome => outcome,
        }
    }

    /// Closes the pipes: the child ends when it comes out of its call. Nobody waits for that here.
    pub(super) fn retire(self) -> Child {
        self.child
    }
}

/// How a child that was retired has ended; nothing while it has not. Waits a moment, since one that closed
/// its output is on its way.
pub(super) fn ended(child: &mut Child) -> Option<String> {
    for _ in 0..10 {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.to_string()),
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
            Err(error) => return Some(error.to_string()),
        }
    }
    None
}

/// The NVML call that a process is in, by the names of its threads.
pub(super) fn call_in(pid: u32) -> Option<&'static str> {
    threads(pid).iter().find_map(|name| call_of(name))
}

/// Whether a process lives that is a child of this program's: one of its threads is named by us. Its command
/// line is not asked for: to read that, the kernel may wait for a process that is stuck.
pub(super) fn is_ours(pid: u32) -> bool {
    threads(pid).iter().any(|name| name == IDLE || call_of(name).is_some())
}

/// The names of a process's threads; none when it is gone.
fn threads(pid: u32) -> Vec<String> {
    let tasks = Path::new("/proc").join(pid.to_string()).join("task");
    let threads = tree::names(&tasks).unwrap_or_default();
    threads.iter().filter_map(|thread| tree::word(&tasks.join(thread).join("comm")).get().cloned()).collect()
}
