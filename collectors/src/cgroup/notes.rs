//! What the site's scheduler says of a job: one small file per job, which a prolog or an epilog of Slurm, or whoever
//! watches the kubelet, leaves on the node.
//!
//! The format is lines of `key=value`; keys that are not known are left alone (docs/tenants.md). Only files of jobs
//! whose processes hold a GPU are opened, and a file's content is bounded before it is believed.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use gpuprod_snapshot::is_unseen;
use gpuprod_snapshot::tenant::{Cgroup, JobNote, JobState};
use gpuprod_snapshot::units::Nanos;

use crate::{CollectError, tree};

/// Beside `proc`, when no other folder is named.
pub(super) const FOLDER: &str = "run/gpuprod/jobs";
/// Longest value.
const LONGEST: usize = 128;
/// Lines of a file that are looked at.
const LINES: usize = 64;

/// The notes about the jobs of these cgroups, and what is to be said of those that cannot be read.
pub(super) fn of(dir: &Path, cgroups: &[Cgroup]) -> (Vec<JobNote>, Vec<String>) {
    let owners = cgroups.iter().map(|cgroup| &cgroup.owner);
    let jobs: BTreeSet<&String> = owners.flat_map(|owner| owner.slurm_job.iter().chain(&owner.pod_uid)).collect();
    let (mut notes, mut unread) = (Vec::new(), Vec::new());
    for job in jobs.into_iter().filter(|job| is_name(job)) {
        match tree::written(&dir.join(job)) {
            Ok(text) => notes.push(parse_note(job, &text)),
            // Most jobs have none.
            Err(error) if is_absent(&error) => {}
            Err(error) => unread.push(error.to_string()),
        }
    }
    (notes, unread)
}

fn is_absent(error: &CollectError) -> bool {
    let source = error.source.as_ref().and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| source.kind() == io::ErrorKind::NotFound)
}

/// Names are made of what job numbers and uids are made of: they lead nowhere else.
fn is_name(job: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    !job.is_empty() && job.len() <= 64 && job.chars().all(plain)
}

/// Reads one file. What cannot be read is left out; the first line of a key counts.
#[must_use]
pub fn parse_note(job: &str, text: &str) -> JobNote {
    let mut note = JobNote { job: job.to_owned(), ..JobNote::default() };
    for line in text.lines().take(LINES) {
        let Some((key, value)) = line.split_once('=') else { continue };
        let value = value.trim().trim_matches('"');
        let sane = !value.is_empty() && value.len() <= LONGEST && !value.chars().any(is_unseen);
        if !sane {
            continue;
        }
        let slot = match key.trim() {
            "account" | "SLURM_JOB_ACCOUNT" => &mut note.account,
            "partition" | "SLURM_JOB_PARTITION" => &mut note.partition,
            "namespace" => &mut note.namespace,
            "class" => &mut note.class,
            "state" | "SLURM_JOB_STATE" => {
                note.state.get_or_insert_with(|| state(value));
                continue;
            }
            "limit_s" => {
                note.limit = note.limit.or_else(|| seconds(value));
                continue;
            }
            "started" | "SLURM_JOB_START_TIME" => {
                note.started = note.started.or_else(|| seconds(value));
                continue;
            }
            _ => continue,
        };
        slot.get_or_insert_with(|| value.to_owned());
    }
    note
}

/// `sacct` adds words (`CANCELLED by 1000`) and some tools say `OOM_KILLED`.
fn state(word: &str) -> JobState {
    let word = word.split([' ', '+']).next().unwrap_or(word).to_ascii_uppercase();
    JobState::from(if word == "OOM_KILLED" { "OUT_OF_MEMORY" } else { word.as_str() })
}

fn seconds(text: &str) -> Option<Nanos> {
    text.parse::<u64>().ok()?.checked_mul(1_000_000_000).map(Nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_what_prolog_and_epilog_wrote() {
        let note =
            parse_note("4711", "account=physics\npartition=batch\nlimit_s=86400\nstarted=1764295200\nstate=TIMEOUT\n");
        assert_eq!(note.account.as_deref(), Some("physics"));
        assert_eq!(note.partition.as_deref(), Some("batch"));
        assert_eq!((note.limit, note.started), (Some(Nanos::from_secs(86_400)), Some(Nanos::from_secs(1_764_295_200))));
        assert!(note.state.is_some_and(|state| state.is_over()));
        for (word, state) in [
            ("OUT_OF_MEMORY", JobState::OutOfMemory),
            ("OOM_KILLED", JobState::OutOfMemory),
            ("CANCELLED by 1000", JobState::Cancelled),
            ("completed", JobState::Completed),
        ] {
            assert_eq!(parse_note("1", &format!("state={word}")).state, Some(state), "{word}");
        }
        assert!(!JobState::from("SUSPENDED").is_over(), "what is not known ends nothing");
    }

    #[test]
    fn hostile_content_costs_itself_and_nothing_else() {
        let long = "x".repeat(LONGEST + 1);
        let text = format!(
            "account={long}\naccount=a\u{7}b\naccount\n=\nlimit_s=-5\nlimit_s=99999999999999999999\nclass=batch\nclass=serving"
        );
        let note = parse_note("1", &text);
        assert_eq!((note.account, note.limit), (None, None));
        for unseen in ['\u{7f}', '\u{9b}', '\u{61c}', '\u{200b}', '\u{202e}', '\u{2066}'] {
            assert_eq!(parse_note("1", &format!("account=a{unseen}b")).account, None, "{unseen:?}");
        }
        assert_eq!(note.class.as_deref(), Some("batch"), "the first line of a key counts");
        let many = format!("{}account=late", "x=1\n".repeat(LINES));
        assert_eq!(parse_note("1", &many).account, None);
        for name in ["", "..", "../etc/passwd", "a/b", "a.b", &"7".repeat(65)] {
            assert!(!is_name(name), "{name}");
        }
        assert!(is_name("4711_3") && is_name("0f5c1d52-98f1-4d8a-8c2e-1f6f6a1f0a11"));
    }

    #[test]
    fn only_notes_of_jobs_that_hold_a_gpu_are_read() {
        let scratch = crate::scratch::Scratch::with(&[("jobs/7", "account=a"), ("jobs/8", "account=b")]);
        let dir = scratch.host().proc.with_file_name("jobs");
        let cgroup = |path: &str| Cgroup { owner: crate::cgroup::owner_of(path), ..Cgroup::default() };
        let cgroups =
            [cgroup("/system.slice/slurmstepd.scope/job_7/step_0/user/task_0"), cgroup("/system.slice/x.service")];
        let (notes, unread) = of(&dir, &cgroups);
        assert_eq!((notes.len(), unread.len()), (1, 0));
        assert_eq!((notes[0].job.as_str(), notes[0].account.as_deref()), ("7", Some("a")));
        assert_eq!(of(&dir.join("nowhere"), &cgroups), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_note_that_cannot_be_read_is_named_with_its_reason() {
        let scratch = crate::scratch::Scratch::with(&[("jobs/7/inside", ""), ("jobs/9", "account=a")]);
        scratch.link("jobs/8", "/dev/zero");
        let dir = scratch.host().proc.with_file_name("jobs");
        let job = |number: u32| format!("/system.slice/slurmstepd.scope/job_{number}/step_0/user/task_0");
        let cgroup = |path: String| Cgroup { owner: crate::cgroup::owner_of(&path), ..Cgroup::default() };
        let cgroups: Vec<Cgroup> = (7..=10).map(|number| cgroup(job(number))).collect();
        let (notes, unread) = of(&dir, &cgroups);
        assert_eq!(notes.iter().map(|note| note.job.as_str()).collect::<Vec<_>>(), ["9"]);
        let said = |job: &str, why: &str| {
            let path = dir.join(job).display().to_string();
            assert!(unread.iter().any(|line| line.contains(&path) && line.contains(why)), "{job} {why}: {unread:?}");
        };
        said("7", "a directory");
        said("8", "a device");
        assert_eq!(unread.len(), 2, "that job 10 has no note is nothing to be said");
    }
}
