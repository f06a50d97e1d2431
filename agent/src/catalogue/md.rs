//! Linux software RAID.

use gpuprod_snapshot::storage::{MdArray, SyncState};

use super::{Exact, Kind, Metric, value};
use crate::pipeline::Frame;

macro_rules! gauge {
    ($name:literal, $unit:literal, $help:literal, $field:ident) => {
        Metric {
            name: $name,
            kind: Kind::Gauge,
            unit: $unit,
            labels: &["array"],
            help: $help,
            read: |frame, out| each(frame, |array| out.read(&[&array.name], &array.$field)),
        }
    };
}

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "gpuprod.md.info",
        kind: Kind::Gauge,
        unit: "",
        labels: &["array", "level", "state"],
        help: "Level and state of the array.",
        read: |frame, out| {
            each(frame, |array| {
                let level = array.level.get().map_or("", String::as_str);
                let state = array.state.get().map_or("", |state| state.as_str());
                out.put(&[&array.name, level, state], 1_u32.exact());
            });
        },
    },
    gauge!("gpuprod.md.degraded", "{disk}", "Members that the array lacks.", degraded),
    gauge!("gpuprod.md.disks.active", "{disk}", "Members in sync.", active_disks),
    gauge!("gpuprod.md.disks.required", "{disk}", "Member slots.", raid_disks),
    Metric {
        name: "gpuprod.md.sync.running",
        kind: Kind::Gauge,
        unit: "",
        labels: &["array", "action"],
        help: "1 while the array resyncs, recovers, checks, repairs or reshapes; 0 while that waits.",
        read: |frame, out| {
            each(frame, |array| {
                if let (Some(action), Some(sync)) = (array.action.get(), array.sync.get())
                    && *sync != SyncState::None
                {
                    let running = *sync == SyncState::Running;
                    out.put(&[&array.name, action.as_str()], running.exact());
                }
            });
        },
    },
    gauge!("gpuprod.md.sync.progress", "1", "Progress of the sync, as mdstat prints it.", sync_percent),
    gauge!("gpuprod.md.sync.done", "By", "Confirmed progress of the sync per member.", sync_done),
    gauge!("gpuprod.md.sync.size", "By", "What the sync has to do per member.", sync_total),
    gauge!("gpuprod.md.sync.speed", "By/s", "Speed of the sync per member.", sync_speed),
    gauge!(
        "gpuprod.md.sync.speed.floor",
        "By/s",
        "Below this speed the sync never yields to other I/O.",
        sync_speed_min
    ),
    gauge!("gpuprod.md.mismatches", "{sector}", "Sectors that disagreed at the last scrub.", mismatch_sectors),
];

fn each(frame: &Frame<'_>, read: impl FnMut(&MdArray)) {
    value(frame.known.md.as_deref())
        .map_or(&[][..], |md| &md.arrays)
        .iter()
        .filter(|array| !array.is_container)
        .for_each(read);
}
