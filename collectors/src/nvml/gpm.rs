//! GPM: activity by unit between two samples of the driver (Hopper and newer).

use std::collections::BTreeMap;

use gpuprod_snapshot::gpu::Gpm;
use gpuprod_snapshot::units::Nanos;

use super::board::Asker;
use super::calls::GpmSample;
use super::map;
use crate::{Missing, Reading, now};

/// Two samples: the newest that was taken, and one to take the next into.
#[derive(Debug)]
pub(super) struct GpmPair {
    pub(super) newest: Option<GpmSample>,
    taken: Nanos,
    pub(super) spare: GpmSample,
}

/// nvml.h asks for 100 ms between two samples; closer ones gave NaN on an H200.
const GPM_SPACING: Nanos = Nanos::from_millis(100);

/// Takes the next sample and gives the activity since the one before.
pub(super) fn gpm(
    asker: &mut Asker<'_>,
    pairs: &mut BTreeMap<Option<u32>, GpmPair>,
    supported: bool,
    instance: Option<u32>,
) -> Reading<Gpm> {
    if !supported {
        return Reading::Missing(Missing::Unsupported);
    }
    let library = asker.library;
    if let std::collections::btree_map::Entry::Vacant(vacant) = pairs.entry(instance) {
        match library.gpm_alloc() {
            Ok(spare) => vacant.insert(GpmPair { newest: None, taken: Nanos(0), spare }),
            Err(code) => return Reading::Missing(map::missing(code)),
        };
    }
    let Some(pair) = pairs.get_mut(&instance) else { return Reading::Missing(Missing::NotYet) };
    let now = now::boottime();
    if pair.newest.is_some() && now.saturating_sub(pair.taken) < GPM_SPACING {
        return Reading::Missing(Missing::NotYet);
    }
    pair.taken = now;
    // An instance that lacks it does not speak for the others, so these are not probed under one name.
    let taken = match instance {
        None => asker.ask("gpm sample", |l, d| l.gpm_take(d, None, pair.spare)),
        Some(_) => library.gpm_take(asker.device, instance, pair.spare),
    };
    if let Err(code) = taken {
        return Reading::Missing(map::missing(code));
    }
    match pair.newest {
        Some(older) => {
            pair.newest = Some(pair.spare);
            pair.spare = older;
            map::gpm(library.gpm_metrics(older, pair.newest.unwrap_or(older), map::GPM_METRICS))
        }
        None => match library.gpm_alloc() {
            Ok(next) => {
                pair.newest = Some(std::mem::replace(&mut pair.spare, next));
                Reading::Missing(Missing::NotYet)
            }
            Err(code) => Reading::Missing(map::missing(code)),
        },
    }
}
