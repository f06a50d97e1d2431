//! Whose the unit is at this tick: parts by process, the class, and whether the job is over.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use gpuprod_snapshot::gpu::{Gpu, GpuProcess};
use gpuprod_snapshot::tenant::{Cgroup, JobNote, JobState};
use gpuprod_snapshot::units::{Nanos, to_f64};
use serde::{Deserialize, Serialize};

use crate::gather::Gather;
use crate::tenancy::{Origin, Tenancy};
use crate::unit::Unit;
use crate::{Class, Part};

/// Tenants of one unit at one instant; the rest is nobody's.
const MOST: usize = 16;

/// Whose a unit is. Kept while the driver is silent: a GPU that was lost stays owned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Ownership {
    /// Parts of the unit by tenant, in the order of names; they sum to one, or there are none.
    pub(crate) parts: Vec<(Option<String>, Part)>,
    /// What it is for, if that was declared.
    pub(crate) class: Option<Class>,
}

impl Ownership {
    /// The tenant that has all of it.
    pub(crate) fn sole(&self) -> Option<String> {
        match self.parts.as_slice() {
            [(Some(tenant), _)] => Some(tenant.clone()),
            _ => None,
        }
    }

    /// The parts, where more than one has a part.
    pub(crate) fn shared(&self) -> Vec<(Option<String>, Part)> {
        if self.parts.len() > 1 { self.parts.clone() } else { Vec::new() }
    }
}

impl Gather<'_> {
    /// What is known of a process.
    pub(crate) fn origin(&self, pid: u32) -> Option<Origin<'_>> {
        let process = self.processes.get(&pid)?;
        let cgroup = process.cgroup.get().map_or("", String::as_str);
        let owner = self.cgroups.get(cgroup).map(|cgroup| &cgroup.owner);
        let job = owner.and_then(|owner| owner.slurm_job.as_ref().or(owner.pod_uid.as_ref()));
        let note = job.and_then(|job| self.note(job));
        Some(Origin { cgroup, owner, note, uid: process.uid.copied() })
    }

    fn note(&self, job: &str) -> Option<&JobNote> {
        self.notes.iter().find(|note| note.job == job)
    }

    /// Whose a cgroup is; none when that cannot be told.
    pub(crate) fn tenant_of(&self, cgroup: &Cgroup) -> Option<String> {
        let job = cgroup.owner.slurm_job.as_ref().or(cgroup.owner.pod_uid.as_ref());
        let note = job.and_then(|job| self.note(job));
        self.tenancy.tenant(Origin { cgroup: &cgroup.path, owner: Some(&cgroup.owner), note, uid: None })
    }

    /// Whose the unit is now. While the driver says nothing, whose it was.
    pub(crate) fn ownership(&self, unit: &mut Unit, gpu: Option<&Gpu>, tenancy: &Tenancy) -> Arc<Ownership> {
        let Some(processes) = gpu.and_then(|gpu| gpu.processes.get()) else {
            return unit.ownership.clone();
        };
        // Of the rest that no instance has, nobody's process is.
        let own = |process: &&GpuProcess| !unit.is_rest() && (unit.gi.is_none() || process.gi == unit.gi);
        let holders: Vec<&GpuProcess> = processes.iter().filter(own).collect();
        let classes = holders.iter().filter_map(|process| tenancy.class(self.origin(process.pid)?));
        // Of several that share a unit the one that may idle least decides.
        let class = classes.max_by_key(|class| *class != Class::Serving);
        let now = Ownership { parts: self.parts(&holders, tenancy), class };
        if *unit.ownership != now {
            unit.ownership = Arc::new(now);
        }
        unit.ownership.clone()
    }

    fn parts(&self, holders: &[&GpuProcess], tenancy: &Tenancy) -> Vec<(Option<String>, Part)> {
        let whose = |process: &GpuProcess| self.origin(process.pid).and_then(|origin| tenancy.tenant(origin));
        if let [only] = holders {
            return whose(only).map(|tenant| alloc::vec![(Some(tenant), Part::ONE)]).unwrap_or_default();
        }
        let mut tenants: BTreeMap<Option<String>, (f64, f64)> = BTreeMap::new();
        for process in holders {
            let tenant = whose(process);
            let tenant = if tenants.len() < MOST || tenants.contains_key(&tenant) { tenant } else { None };
            let (sm, memory) = tenants.entry(tenant).or_default();
            *sm += process.sm.copied().map_or(0.0, |sm| sm.as_fraction());
            *memory += process.mem_used.copied().map_or(0.0, |bytes| to_f64(bytes.0));
        }
        if tenants.len() < 2 {
            let sole = tenants.into_keys().flatten().next();
            return sole.map(|tenant| alloc::vec![(Some(tenant), Part::ONE)]).unwrap_or_default();
        }
        // By work; while none is done, by the memory that is held; where neither is told, to equal parts.
        let sum = |pick: fn(&(f64, f64)) -> f64| tenants.values().map(pick).sum::<f64>();
        let (sm, memory) = (sum(|use_| use_.0), sum(|use_| use_.1));
        let count = to_f64(u64::try_from(tenants.len()).unwrap_or(1));
        let mut left = Part::ONE.0;
        let mut parts: Vec<(Option<String>, Part)> = Vec::with_capacity(tenants.len());
        for (tenant, (own_sm, own_memory)) in tenants {
            let share = if sm > 0.0 {
                own_sm / sm
            } else if memory > 0.0 {
                own_memory / memory
            } else {
                1.0 / count
            };
            let part = Part::from_fraction(share).0.min(left);
            left -= part;
            parts.push((tenant, Part(part)));
        }
        // What rounding has left goes to the largest.
        if let Some(largest) = parts.iter_mut().max_by_key(|part| part.1) {
            largest.1.0 += left;
        }
        parts.retain(|part| part.1.0 > 0);
        parts
    }

    /// What the site and the kernel say of the job that these processes belong to.
    pub(crate) fn job(&self, pids: &[u32]) -> Option<Job> {
        let origins: Vec<Origin<'_>> = pids.iter().filter_map(|pid| self.origin(*pid)).collect();
        let note = origins.iter().find_map(|origin| origin.note)?;
        let is_over = |origin: &Origin<'_>| origin.note?.state.as_ref().filter(|state| state.is_over()).cloned();
        let over = origins.iter().map(is_over).collect::<Option<Vec<JobState>>>();
        let end = note.started.zip(note.limit).map(|(started, limit)| started.saturating_add(limit));
        let oom = origins.iter().filter_map(|origin| self.cgroups.get(origin.cgroup)?.oom_kills.copied()).max();
        Some(Job {
            id: note.job.clone(),
            // Those that cannot be looked at may belong to another job.
            over: over.filter(|_| origins.len() == pids.len()).and_then(|over| over.into_iter().next()),
            left: end.map(|end| end.saturating_sub(self.window.last.stamp.realtime)),
            oom_kills: oom.unwrap_or(0),
        })
    }
}

/// The job of a unit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Job {
    /// Its number, or its pod's uid.
    pub(crate) id: String,
    /// How it ended, if the site says that it is over.
    pub(crate) over: Option<JobState>,
    /// Time until its wall limit.
    pub(crate) left: Option<Nanos>,
    /// Kills by the out-of-memory killer in its cgroup.
    pub(crate) oom_kills: u64,
}
