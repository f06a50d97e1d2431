//! Two threads, and results in the order of the jobs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// At most so many threads: the bench shares its machine.
const THREADS: usize = 2;

/// Runs every job. The first error in the order of the jobs is the error of all.
pub(crate) fn map<J: Sync, R: Send>(
    jobs: &[J],
    work: impl Fn(&J) -> Result<R, String> + Sync,
) -> Result<Vec<R>, String> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<R, String>)>> = Mutex::new(Vec::with_capacity(jobs.len()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS.min(jobs.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else { break };
                    let result = work(job);
                    if let Ok(mut done) = done.lock() {
                        done.push((index, result));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().map_err(|_| "a thread of the bench has died".to_owned())?;
    if done.len() != jobs.len() {
        return Err("a thread of the bench has died".into());
    }
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}
