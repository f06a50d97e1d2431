//! What a blocked thread waits for, by the kernel function that it sleeps in.

/// Whose doing the wait is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A local file system or block device; buffered reads of network file systems sleep there too.
    Io,
    /// A network file system's server.
    Remote,
    /// The GPU driver.
    Driver,
    /// Something else, or we may not know.
    Unknown,
}

/// Beginnings of function names, longest first where one begins another. `nvme_` is a disk, `nv_` is not.
const PLACES: &[(&str, Wait)] = &[
    ("rpc_", Wait::Remote),
    ("nfs", Wait::Remote),
    ("__nfs", Wait::Remote),
    ("request_wait_answer", Wait::Remote),
    ("fuse_", Wait::Remote),
    ("ceph_", Wait::Remote),
    ("ptlrpc_", Wait::Remote),
    ("ll_", Wait::Remote),
    ("cl_", Wait::Remote),
    ("osc_", Wait::Remote),
    ("ldlm_", Wait::Remote),
    ("cifs_", Wait::Remote),
    ("smb2_", Wait::Remote),
    ("wait_for_response", Wait::Remote),
    ("p9_", Wait::Remote),
    ("nvidia", Wait::Driver),
    ("uvm_", Wait::Driver),
    ("nv_", Wait::Driver),
    ("_nv", Wait::Driver),
    ("nvkms_", Wait::Driver),
    ("os_acquire_", Wait::Driver),
    ("rm_", Wait::Driver),
    ("io_schedule", Wait::Io),
    ("folio_wait", Wait::Io),
    ("__folio_lock", Wait::Io),
    ("filemap_", Wait::Io),
    ("wait_on_page", Wait::Io),
    ("wait_on_buffer", Wait::Io),
    ("__wait_on_buffer", Wait::Io),
    ("blk_", Wait::Io),
    ("blkdev_", Wait::Io),
    ("rq_qos_", Wait::Io),
    ("submit_bio", Wait::Io),
    ("bio_", Wait::Io),
    ("balance_dirty_pages", Wait::Io),
    ("wait_barrier", Wait::Io),
    ("regular_request_wait", Wait::Io),
    ("raid", Wait::Io),
    ("md_", Wait::Io),
    ("dm_", Wait::Io),
    ("iomap_", Wait::Io),
    ("__iomap_", Wait::Io),
    ("do_blockdev_direct", Wait::Io),
    ("jbd2_", Wait::Io),
    ("ext4_", Wait::Io),
    ("xfs_", Wait::Io),
    ("btrfs_", Wait::Io),
    ("nvme_", Wait::Io),
    ("scsi_", Wait::Io),
];

/// What a thread in this function waits for.
pub(crate) fn of(place: &str) -> Wait {
    PLACES.iter().find(|(begins, _)| place.starts_with(begins)).map_or(Wait::Unknown, |(_, wait)| *wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_is_no_driver_and_a_server_is_no_drive() {
        assert_eq!(of("nvme_submit_sync_cmd"), Wait::Io);
        assert_eq!(of("nvidia_ioctl"), Wait::Driver);
        assert_eq!(of("uvm_spin_loop"), Wait::Driver);
        assert_eq!(of("rpc_wait_bit_killable"), Wait::Remote);
        assert_eq!(of("raid5_get_active_stripe"), Wait::Io);
        assert_eq!(of("folio_wait_bit_common"), Wait::Io);
        assert_eq!(of("futex_wait_queue"), Wait::Unknown);
    }
}
