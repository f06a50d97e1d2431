//! Linux software RAID: sysfs first, `/proc/mdstat` for what it alone knows (finer progress, PENDING and
//! REMOTE, the `[UU_]` slots, the layout in words, the estimate of the end) and for everything where sysfs has
//! no md tree.

use gpuprod_snapshot::storage::{Md, MdAction, MdArray, SyncState};

use crate::{CollectError, Collector, Focus, Host, Missing, Part, Source, tree};

pub mod mdstat;
pub mod sysfs;
#[cfg(test)]
mod tests;

/// The arrays.
pub struct Arrays;

impl Collector for Arrays {
    fn source(&self) -> Source {
        Source::Md
    }

    /// No md module, no array: an empty list. That is the normal state of most nodes.
    fn collect(&mut self, host: &Host, _focus: &Focus) -> Result<Part, CollectError> {
        let found = sysfs::read(&host.sys);
        let told = tree::text(&host.proc.join("mdstat")).map(|text| mdstat::parse(&text));
        let mut arrays = match (found, told) {
            (Ok(found), Ok(told)) => merge(found, told),
            (Ok(arrays), Err(_)) | (Err(_), Ok(arrays)) => arrays,
            (Err(sysfs), Err(mdstat)) => match (sysfs.missing, mdstat.missing) {
                (Missing::Unsupported, Missing::Unsupported) => Vec::new(),
                (Missing::Unsupported, _) => return Err(mdstat),
                _ => return Err(sysfs),
            },
        };
        arrays.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Part::Md(Md { arrays }))
    }
}

/// The container of a volume: `/md127/0` stands in `external:/md127/0`.
fn volume_of(external: &str) -> Option<String> {
    let name = external.strip_prefix(['/', '-'])?.split('/').next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// By name. What only mdstat shows (the array appeared between the two reads) is kept as it stands there.
#[must_use]
pub fn merge(found: Vec<MdArray>, told: Vec<MdArray>) -> Vec<MdArray> {
    let mut told = told;
    let mut arrays: Vec<MdArray> = found
        .into_iter()
        .map(|array| match told.iter().position(|t| t.name == array.name) {
            Some(at) => both(array, told.swap_remove(at)),
            None => array,
        })
        .collect();
    arrays.append(&mut told);
    arrays
}

macro_rules! take {
    (from $told:ident into $array:ident always: $($always:ident)+, where missing: $($fill:ident)+) => {
        $(if $told.$always.get().is_some() || $array.$always.get().is_none() { $array.$always = $told.$always; })+
        $(if $array.$fill.get().is_none() && $told.$fill.get().is_some() { $array.$fill = $told.$fill; })+
    };
}

fn both(mut array: MdArray, told: MdArray) -> MdArray {
    // mdstat's silence is no action of its own: without sync_action (raid0) the action stays unsupported.
    let told_sync = told.sync.get().filter(|sync| **sync != SyncState::None);
    let quiet = array.sync.get().is_none_or(|sync| *sync == SyncState::None);
    if let Some(sync) = told_sync
        && quiet
    {
        array.sync = sync.clone().into();
        if array.action.get().is_none_or(|action| *action == MdAction::Idle) {
            array.action = told.action.clone();
        }
    }
    for member in &mut array.members {
        // mdstat can list one name twice (a member that was re-added): the first number is as good as the other.
        member.nr = told.members.iter().find(|t| t.name == member.name).and_then(|t| t.nr);
    }
    if array.members.is_empty() {
        array.members = told.members;
    }
    array.container = array.container.or(told.container);
    array.is_container |= told.is_container;
    take!(from told into array
        always: slots missing active_disks layout sync_done_fine sync_total_fine sync_percent sync_finish,
        where missing: level state metadata size chunk raid_disks degraded sync_speed bitmap);
    array
}
