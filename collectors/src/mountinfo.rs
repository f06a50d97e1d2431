//! `/proc/PID/mountinfo`: which path lies on which device.

use gpuprod_snapshot::storage::Mount;

use crate::{CollectError, Host, tree};

/// Lines beyond this are not looked at.
const MAX_LINES: usize = 8192;

/// File systems on a server. A path on one of them is worth naming although it has no block device.
const NETWORK: &[&str] = &[
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "ceph",
    "lustre",
    "beegfs",
    "beegfs_nodev",
    "gpfs",
    "wekafs",
    "glusterfs",
    "afs",
    "9p",
    "virtiofs",
    "fuse",
    "fuseblk",
    "orangefs",
    "panfs",
];

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What the line says, in the vocabulary's terms.
    pub mount: Mount,
    /// Which folder of the file system is mounted (`/` unless it is a bind mount or a subvolume).
    pub root: String,
}

impl Line {
    /// On a block device. btrfs and other file systems over several devices have major number 0, but name one.
    #[must_use]
    pub fn on_block_device(&self) -> bool {
        self.mount.dev.0 != 0 || self.mount.source.starts_with("/dev/")
    }
    /// On a server.
    #[must_use]
    pub fn on_network(&self) -> bool {
        NETWORK.contains(&self.mount.fs.as_str()) || self.mount.fs.starts_with("fuse.")
    }
}

/// The node's mounts: those of process 1, or our own where these cannot be read.
///
/// # Errors
/// When neither can be read.
pub fn of_node(host: &Host) -> Result<Vec<Line>, CollectError> {
    tree::text(&host.proc.join("1/mountinfo"))
        .or_else(|_| tree::text(&host.proc.join("self/mountinfo")))
        .map(|text| parse(&text))
}

/// All lines that make sense, in their order.
#[must_use]
pub fn parse(text: &str) -> Vec<Line> {
    text.lines().take(MAX_LINES).filter_map(line).collect()
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`.
fn line(line: &str) -> Option<Line> {
    let (head, tail) = line.split_once(" - ")?;
    let mut head = head.split(' ').skip(2);
    let dev = dev(head.next()?)?;
    let root = unescape(head.next()?);
    let point = unescape(head.next()?);
    let read_only = head.next()?.split(',').any(|option| option == "ro");
    let mut tail = tail.split(' ');
    Some(Line {
        mount: Mount { point, fs: tail.next()?.to_owned(), source: unescape(tail.next()?), dev, read_only },
        root,
    })
}

/// `259:1`.
pub(crate) fn dev(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The kernel writes blank, tab, newline, backslash and `#` as three octal digits.
fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|code| u8::from_str_radix(code, 8).ok());
        match code {
            Some(code) if code.is_ascii() => {
                plain.push(char::from(code));
                plain.push_str(part.get(3..).unwrap_or_default());
            }
            _ => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain
}

/// The mount that a path lies on: the last of those with the longest point.
#[must_use]
pub fn holding<'a>(lines: &'a [Line], path: &str) -> Option<&'a Line> {
    let below = |point: &str| match path.strip_prefix(point) {
        Some(rest) => rest.is_empty() || point.ends_with('/') || rest.starts_with('/'),
        None => false,
    };
    lines.iter().filter(|line| below(&line.mount.point)).max_by_key(|line| line.mount.point.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
28 27 9:0 / /data rw,relatime shared:2 master:3 - xfs /dev/md0 rw
29 27 0:45 /sub /data/my\\040set ro,noatime - btrfs /dev/nvme1n1 rw
30 28 0:50 / /data/shm rw - tmpfs tmpfs rw
31 27 0:61 / /home rw - nfs4 server:/export rw
torn line
";

    #[test]
    fn paths_are_found_on_the_longest_mount_point() {
        let lines = parse(TEXT);
        assert_eq!(lines.len(), 6);
        let on = |path| holding(&lines, path).map(|line| line.mount.point.as_str());
        assert_eq!(on("/data/x"), Some("/data"));
        assert_eq!(on("/data"), Some("/data"));
        assert_eq!(on("/database/x"), Some("/"));
        assert_eq!(on("/data/my set/shard-0"), Some("/data/my set"));
        assert_eq!(on("/data/shm/x"), Some("/data/shm"));
        assert_eq!(on("relative"), None);
        assert!(lines[3].on_block_device(), "btrfs has major 0 and a device");
        assert!(lines[3].mount.read_only && !lines[2].mount.read_only);
        assert_eq!(lines[3].root, "/sub");
        assert!(lines[5].on_network() && !lines[5].on_block_device());
        assert!(!lines[4].on_block_device() && !lines[0].on_network());
    }
}
