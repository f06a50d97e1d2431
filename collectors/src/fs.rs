//! Network file systems: what the NFS client counts per mount (`/proc/1/mountstats`).
//!
//! The kernel answers this from its own memory: it does not ask the server, so a dead one cannot hold the read.
//! Other network file systems have no such file; of them the processes' own waits tell (`wchan`).

use gpuprod_snapshot::storage::{Fs, FsMount};
use gpuprod_snapshot::units::{Bytes, Nanos};

use crate::{CollectError, Collector, Focus, Host, Missing, Part, Reading, Source, tree};

/// Mounts beyond this are left out.
const MAX_MOUNTS: usize = 256;

/// The network mounts of the node.
pub struct NetworkMounts;

impl Collector for NetworkMounts {
    fn source(&self) -> Source {
        Source::Fs
    }

    fn collect(&mut self, host: &Host, _: &Focus) -> Result<Part, CollectError> {
        let text = tree::text(&host.proc.join("1/mountstats"))
            .or_else(|_| tree::text(&host.proc.join("self/mountstats")))
            .map_err(|error| error.hint("without it only the waits of processes tell of NFS"))?;
        Ok(Part::Fs(Fs { mounts: parse(&text) }))
    }
}

/// The mounts that carry statistics, in their order.
#[must_use]
pub fn parse(text: &str) -> Vec<FsMount> {
    let mut mounts: Vec<Counting> = Vec::new();
    let mut counts = false;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("device ") {
            let mount = header(rest).filter(|_| mounts.len() < MAX_MOUNTS);
            counts = mount.is_some();
            mounts.extend(mount);
        } else if counts && let Some(mount) = mounts.last_mut() {
            mount.line(line);
        }
    }
    mounts.into_iter().map(Counting::done).collect()
}

/// `server:/export mounted on /models with fstype nfs4 statvers=1.1`. Mounts without statistics say no version.
fn header(rest: &str) -> Option<Counting> {
    let (front, version) = rest.rsplit_once(" statvers=")?;
    let (front, fs) = front.rsplit_once(" with fstype ")?;
    let (_, point) = front.split_once(" mounted on ")?;
    (!version.is_empty()).then(|| Counting { point: point.to_owned(), fs: fs.to_owned(), ..Counting::default() })
}

/// A mount whose lines are being read.
#[derive(Default)]
struct Counting {
    point: String,
    fs: String,
    bytes: Option<(u64, u64)>,
    /// Requests sent and answers received, summed over connections.
    asked: Option<(u64, u64)>,
    /// Operations, and milliseconds in the queue and on the way; none once a line was malformed.
    ops: Option<(u64, u64, u64)>,
    broken: bool,
    in_ops: bool,
}

impl Counting {
    fn line(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let key = words.next().unwrap_or_default();
        let rest: Vec<&str> = words.collect();
        let number = |at: usize| rest.get(at).and_then(|word| word.parse::<u64>().ok());
        match key {
            // normal read and written, direct read and written, then what the server gave and took.
            "bytes:" => self.bytes = number(4).zip(number(5)),
            "xprt:" => self.connection(&rest),
            "per-op" => self.in_ops = true,
            _ if self.in_ops && key.ends_with(':') => {
                // operations, transmissions, timeouts, bytes sent and received, ms in queue, on the way, in all.
                let new = number(0).zip(number(5)).zip(number(6));
                let old = self.ops.unwrap_or_default();
                match new.and_then(|((ops, queue), rtt)| {
                    Some((old.0.checked_add(ops)?, old.1.checked_add(queue)?, old.2.checked_add(rtt)?))
                }) {
                    Some(sum) => self.ops = Some(sum),
                    None => self.broken = true,
                }
            }
            _ => {}
        }
    }

    /// `tcp` port binds connects connect-time idle sends receives …; `udp` has no connections. Others (RDMA, local
    /// sockets) count in another order and are left out.
    fn connection(&mut self, rest: &[&str]) {
        let at = match rest.first() {
            Some(&"tcp") => 6,
            Some(&"udp") => 3,
            _ => return,
        };
        let number = |at: usize| rest.get(at).and_then(|word| word.parse::<u64>().ok());
        if let Some((sent, received)) = number(at).zip(number(at + 1)) {
            let (s, r) = self.asked.unwrap_or_default();
            self.asked = Some((s.saturating_add(sent), r.saturating_add(received)));
        }
    }

    fn done(self) -> FsMount {
        let missing = if self.broken { Missing::Malformed } else { Missing::Unsupported };
        let ops = if self.broken { None } else { self.ops };
        let millis = |ms: u64| ms.checked_mul(1_000_000).map(Nanos);
        FsMount {
            point: self.point,
            fs: self.fs,
            ops: Reading::from_option(ops.map(|ops| ops.0), missing),
            queue: Reading::from_option(ops.and_then(|ops| millis(ops.1)), missing),
            rtt: Reading::from_option(ops.and_then(|ops| millis(ops.2)), missing),
            read: Reading::from_option(self.bytes.map(|bytes| Bytes(bytes.0)), Missing::Unsupported),
            written: Reading::from_option(self.bytes.map(|bytes| Bytes(bytes.1)), Missing::Unsupported),
            unanswered: Reading::from_option(
                self.asked.map(|(sent, received)| sent.saturating_sub(received)),
                Missing::Unsupported,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the words of `nfs_show_stats` and `rpc_clnt_show_stats` (fs/nfs/super.c, net/sunrpc/stats.c).
    const TEXT: &str = "\
device proc mounted on /proc with fstype proc
device srv:/m mounted on /models with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576
\tage:\t7863
\tbytes:\t1000 20 300 4 900 30 12 3
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 819 0 2 0 38 27965 27960 0 29078 0 2 0 0
\txprt:\ttcp 820 0 2 0 38 100 99 0 10 0 2 0 0
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 500 501 1 88000 524288000 70 4200 4300 0
\t       WRITE: 10 10 0 1000 100 5 30 36 0
device /dev/vda mounted on / with fstype ext4
\tREAD: 9 9 9 9 9 9 9 9 9
device a:/b mounted on /c with fstype nfs statvers=1.1
\tper-op statistics
\t        READ: 1 x
";

    #[test]
    fn the_clients_counters_are_summed_per_mount() {
        let mounts = parse(TEXT);
        assert_eq!(mounts.len(), 2);
        let models = &mounts[0];
        assert_eq!((models.point.as_str(), models.fs.as_str()), ("/models", "nfs4"));
        assert_eq!(models.ops, Reading::Value(511));
        assert_eq!(models.queue, Reading::Value(Nanos(75_000_000)));
        assert_eq!(models.rtt, Reading::Value(Nanos(4_230_000_000)));
        assert_eq!(models.read, Reading::Value(Bytes(900)));
        assert_eq!(models.written, Reading::Value(Bytes(30)));
        assert_eq!(models.unanswered, Reading::Value(6), "27965 - 27960 + 100 - 99");
        assert_eq!(mounts[1].ops, Reading::Missing(Missing::Malformed));
        assert_eq!(mounts[1].unanswered, Reading::Missing(Missing::Unsupported));
    }

    #[test]
    fn hostile_text_costs_nothing() {
        assert_eq!(parse("device \nper-op\nREAD: 1 2\n"), []);
        let huge = format!(
            "device a mounted on /b with fstype nfs statvers=1\nper-op statistics\nA: {0} 1 1 1 1 {0} {0} 1 1\nB: {0} 1 1 1 1 1 1 1 1\n",
            u64::MAX
        );
        assert_eq!(parse(&huge)[0].ops, Reading::Missing(Missing::Malformed));
    }
}
