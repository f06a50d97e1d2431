//! How a GPU is cut into units: its MIG instances and what is left of it, or the whole. They are one GPU together,
//! whatever the driver does not say at times: what it said before counts on.

use alloc::format;
use alloc::vec::Vec;

use gpuprod_snapshot::gpu::Gpu;

use super::Units;
use crate::UnitId;

/// One unit of a GPU.
pub(super) struct Piece {
    pub id: UnitId,
    pub gi: Option<u32>,
    pub rest: bool,
    pub slices: u32,
}

/// The units of a GPU and the slices of the whole. None when the driver does not say whether a GPU is cut that was.
pub(super) fn pieces(gpu: &Gpu, uuid: &UnitId, units: &Units) -> Option<(Vec<Piece>, u32)> {
    let mut held = units.units.iter().filter(|(_, unit)| unit.gpu == *uuid);
    let whole = whole(gpu, held.clone().next().map(|(_, unit)| unit.slices_whole));
    if gpu.mig.copied() != Some(true) {
        let keeps = gpu.mig.get().is_none() && held.any(|(id, _)| id != uuid);
        let piece = Piece { id: uuid.clone(), gi: None, rest: false, slices: whole };
        return (!keeps).then(|| (alloc::vec![piece], whole));
    }
    let mut pieces: Vec<Piece> = Vec::with_capacity(gpu.instances.len().saturating_add(1));
    for instance in &gpu.instances {
        let id = instance.uuid.get().cloned().unwrap_or_else(|| format!("{uuid}/gi{}", instance.gi));
        let id = UnitId(id.into());
        let before = || units.units.get(&id).map(|unit| unit.slices);
        let slices = instance.slices.copied().or_else(before).unwrap_or(1);
        pieces.push(Piece { id, gi: Some(instance.gi), rest: false, slices });
    }
    let used = pieces.iter().fold(0, |sum: u32, piece| sum.saturating_add(piece.slices));
    let whole = whole.max(used);
    if whole > used {
        let id = UnitId(format!("{uuid}/rest").into());
        pieces.push(Piece { id, gi: None, rest: true, slices: whole - used });
    }
    Some((pieces, whole))
}

/// Slices of the whole GPU, as the driver says or said before.
pub(super) fn whole(gpu: &Gpu, before: Option<u32>) -> u32 {
    gpu.mig_slices.copied().filter(|slices| *slices > 0).or(before).unwrap_or(1)
}
