//! Bodies that wait to be sent, oldest first, within a number of bytes. The oldest goes when room is needed.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hyper::body::Bytes;

/// The queue in memory, for an agent that keeps nothing on disk.
#[derive(Debug)]
pub struct Memory {
    most: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    bodies: VecDeque<(i64, Bytes)>,
    bytes: usize,
    next: i64,
}

impl Memory {
    /// Holds at most so many bytes; one body is always taken.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a body; how many old ones went for it.
    pub fn put(&self, body: Bytes) -> u64 {
        let mut inner = self.inner();
        let id = inner.next;
        inner.next += 1;
        inner.bytes += body.len();
        inner.bodies.push_back((id, body));
        let mut dropped = 0;
        while inner.bytes > self.most && inner.bodies.len() > 1 {
            if let Some((_, old)) = inner.bodies.pop_front() {
                inner.bytes -= old.len();
                dropped += 1;
            }
        }
        dropped
    }

    /// The oldest body and its number.
    #[must_use]
    pub fn oldest(&self) -> Option<(i64, Bytes)> {
        self.inner().bodies.front().cloned()
    }

    /// Takes a body away; it may have gone already.
    pub fn done(&self, id: i64) {
        let mut inner = self.inner();
        if inner.bodies.front().is_some_and(|(oldest, _)| *oldest == id)
            && let Some((_, body)) = inner.bodies.pop_front()
        {
            inner.bytes -= body.len();
        }
    }

    /// Bodies that wait, and their bytes.
    #[must_use]
    pub fn size(&self) -> (u64, u64) {
        let inner = self.inner();
        let count = |value: usize| u64::try_from(value).unwrap_or(u64::MAX);
        (count(inner.bodies.len()), count(inner.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_for_the_newest() {
        let queue = Memory::new(10);
        assert_eq!(queue.put(Bytes::from_static(b"aaaa")), 0);
        assert_eq!(queue.put(Bytes::from_static(b"bbbb")), 0);
        let (first, _) = queue.oldest().unwrap();
        assert_eq!(queue.put(Bytes::from_static(b"cccc")), 1);
        // The one in flight went for room: its success takes nothing else away.
        queue.done(first);
        assert_eq!(queue.size(), (2, 8));
        let (second, body) = queue.oldest().unwrap();
        assert_eq!(body, "bbbb");
        queue.done(second);
        assert_eq!(queue.put(Bytes::from_static(b"larger than all")), 1);
        assert_eq!(queue.size(), (1, 15), "the newest is never refused");
    }
}
