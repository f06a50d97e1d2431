//! The driver's error lines and the memory's errors, until the GPU was clean again for a while.

use alloc::string::String;

use gpuprod_snapshot::gpu::{Gpu, GpuHealth, Xid};
use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use super::codes::{Class, meaning};
use crate::Policy;

/// Errors of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Errors {
    /// The first fatal line since the GPU was last clean: what follows is its consequence.
    pub(crate) fatal: Option<Line>,
    /// The last line that asks for a look.
    pub(crate) serious: Option<Line>,
    /// The last line of an application's own fault, or that is contained.
    pub(crate) told: Option<Line>,
    /// Uncorrected errors that nothing contained: how many, since when.
    pub(crate) uncorrected: Option<(u64, Nanos)>,
    /// A contained error was last seen at.
    contained: Option<Nanos>,
    counted: Option<u64>,
    /// What the kernel log said that the driver asks for; the driver's own answer stands above it.
    asked: Option<u32>,
    /// The GPU has answered, healthy, since.
    clean: Option<Nanos>,
    /// Lines of each class since the judge began to learn, application first.
    pub(crate) lines: [u32; 4],
}

/// An error line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) code: u32,
    /// When it was first read.
    pub(crate) at: Nanos,
    /// When one of its class was last read.
    pub(crate) last: Nanos,
    /// Lines of its class since.
    pub(crate) count: u32,
    pub(crate) pid: Option<u32>,
    pub(crate) name: Option<String>,
}

impl Errors {
    /// Takes in a line that was printed so long ago.
    pub(crate) fn line(&mut self, xid: &Xid, now: Nanos, age: Nanos, policy: &Policy) {
        let (class, ..) = meaning(xid.code);
        if let Some(count) = self.lines.get_mut(class_place(class)) {
            *count = count.saturating_add(1);
        }
        if xid.recovery_action.is_some() {
            self.asked = xid.recovery_action;
        }
        if xid.code == 94 {
            self.contained = Some(now);
        }
        let slot = match class {
            Class::Fatal => &mut self.fatal,
            Class::Serious => &mut self.serious,
            Class::Noted | Class::App => &mut self.told,
        };
        match slot {
            Some(line) if class == Class::Fatal => (line.last, line.count) = (now, line.count.saturating_add(1)),
            slot => {
                let count = slot.as_ref().filter(|line| line.code == xid.code).map_or(0, |line| line.count);
                *slot = Some(Line {
                    code: xid.code,
                    at: now,
                    last: now,
                    count: count.saturating_add(1),
                    pid: xid.pid,
                    name: xid.name.clone(),
                });
            }
        }
        if class == Class::Fatal {
            // An old line that an agent finds at its start: if the GPU is well now, it was mended since.
            let old = age >= policy.fault_hold_ns;
            self.clean = old.then(|| now.saturating_sub(policy.fault_hold_ns));
        }
    }

    /// Takes in what the driver says of the GPU; nothing when it is not on the driver's list.
    pub(crate) fn read(&mut self, gpu: Option<&Gpu>, now: Nanos, policy: &Policy) {
        let well = gpu.is_some_and(|gpu| gpu.health.get().is_none_or(|health| *health == GpuHealth::Ok));
        let asks = gpu.and_then(|gpu| gpu.ecc.recovery_action.copied());
        if asks.is_some() {
            self.asked = asks;
        }
        self.clean = (well && !self.wants_reset()).then(|| self.clean.unwrap_or(now));
        if let Some(total) = gpu.and_then(|gpu| gpu.ecc.uncorrected.copied()) {
            let new = self.counted.and_then(|before| total.checked_sub(before)).unwrap_or(0);
            self.counted = Some(total);
            let contained = self.contained.is_some_and(|at| now.saturating_sub(at) < policy.fault_hold_ns);
            if new > 0 && !contained {
                let (sum, since) = self.uncorrected.unwrap_or((0, now));
                self.uncorrected = Some((sum.saturating_add(new), since));
                self.clean = Some(now);
            }
        }
        if self.clean.is_some_and(|clean| now.saturating_sub(clean) >= policy.fault_hold_ns) {
            (self.fatal, self.uncorrected) = (None, None);
        }
        for slot in [&mut self.serious, &mut self.told] {
            if slot.as_ref().is_some_and(|line| now.saturating_sub(line.last) >= policy.gpu_fault.told_for_ns) {
                *slot = None;
            }
        }
    }

    /// The driver does not answer at all: what is not seen is not clean.
    pub(crate) fn unseen(&mut self) {
        self.clean = None;
    }

    /// What the driver asks for, other than nothing.
    pub(crate) fn action(&self) -> Option<u32> {
        self.asked.filter(|action| *action != 0)
    }

    /// It asks for a reset or a reboot, at once.
    pub(crate) fn wants_reset(&self) -> bool {
        matches!(self.asked, Some(1 | 2))
    }
}

const fn class_place(class: Class) -> usize {
    match class {
        Class::App => 0,
        Class::Noted => 1,
        Class::Serious => 2,
        Class::Fatal => 3,
    }
}
