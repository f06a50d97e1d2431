//! What is going on at a second: all events that are on, as they act on one workload, GPU or device.

use gpuprod_snapshot::Source;

use crate::engine_sim::Wedge;
use crate::knobs::{look, turn};
use crate::node::{NodeEvent, Want};
use crate::scenario::{Array, Fate, Harm, Knobs, Scenario, Share, SyncVerb, What, Work, towards};

/// How a workload fares.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pace {
    /// Share of its speed that is left.
    pub(crate) speed: f64,
    /// Share of its time that it waits for storage.
    pub(crate) storage: f64,
    /// Whether its process is there and serves.
    pub(crate) up: bool,
    /// What became of it, if it did not just go on.
    pub(crate) fate: Option<Fate>,
    /// Its page is refused.
    pub(crate) muted: bool,
    /// A device or server that it reads answers nothing: whether that is a network file system.
    pub(crate) stuck: Option<bool>,
    /// How the node around it makes it wait.
    pub(crate) want: Want,
    /// How its engine is stuck, and whether the GPU spins in it.
    pub(crate) wedge: Option<(Wedge, bool)>,
    /// Its engine sleeps: the weights are in the host's memory.
    pub(crate) sleeps: bool,
    /// Share of its output that slower code leaves, with a GPU that works as before.
    pub(crate) slower_code: f64,
}

impl Pace {
    /// Full speed.
    pub(crate) const fn full() -> Self {
        Self {
            speed: 1.0,
            storage: 0.0,
            up: true,
            fate: None,
            muted: false,
            stuck: None,
            want: Want { cpu: 0.0, throttled: 0.0, memory: 0.0, thrash: false, starts: false },
            wedge: None,
            sleeps: false,
            slower_code: 1.0,
        }
    }

    /// Whether its page is not answered in time.
    pub(crate) const fn times_out(&self) -> bool {
        matches!(self.wedge, Some((Wedge::Timeout, _)))
    }

    /// Whether its page answers.
    pub(crate) const fn serves(&self) -> bool {
        self.up && self.fate.is_none() && !self.muted && !self.want.starts && !self.times_out()
    }
}

/// A synchronisation that goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sync<'a> {
    pub(crate) action: SyncVerb,
    pub(crate) speed: f64,
    pub(crate) done: f64,
    /// Seconds since it began.
    pub(crate) age: u64,
    pub(crate) harm: &'a Harm,
    /// How much of its harm has come.
    pub(crate) grown: f64,
}

impl Scenario {
    fn now(&self, second: u64) -> impl Iterator<Item = &What> {
        self.growing(second).map(|(what, _)| what)
    }

    /// What is going on, and the share of its full effect that each has reached.
    pub(crate) fn growing(&self, second: u64) -> impl Iterator<Item = (&What, f64)> {
        self.events.iter().filter(move |event| event.on(second)).map(move |event| (&event.what, event.grown(second)))
    }

    /// The share of a source's samples that is lost, and whether it fails.
    pub(crate) fn trouble(&self, source: Source, second: u64) -> (f64, bool) {
        self.now(second).fold((0.0, false), |(lost, failed), what| match what {
            What::Drop { share, source: of } if of.is_none_or(|of| of == source) => (f64::max(lost, *share), failed),
            What::Fail { source: of } => (lost, failed || *of == source),
            _ => (lost, failed),
        })
    }

    /// The workload's knobs after all `set` lines up to a second; the later line wins.
    pub(crate) fn knobs(&self, work: &Work, second: u64) -> Knobs {
        let mut knobs = work.knobs.clone();
        for (what, grown) in self.growing(second) {
            if let What::Set { who, changes } = what
                && *who == work.name
            {
                let before = knobs.clone();
                for (name, value) in changes {
                    turn(&mut knobs, name, towards(look(&before, name), *value, grown));
                }
            }
        }
        knobs
    }

    pub(crate) fn pace(&self, work: &Work, second: u64) -> Pace {
        let mut pace = Pace::full();
        let mut storage = 1.0;
        for (what, grown) in self.growing(second) {
            match what {
                What::Sync { harm, .. } | What::Load { harm, .. } => storage *= harm.on(&work.name, grown),
                What::Pcie(event) => pace.speed *= event.harm().on(&work.name, grown),
                What::Slow { who, to } if *who == work.name => pace.speed *= towards(1.0, *to, grown),
                What::Throttle { gpus, to, .. } if shares(gpus, &work.gpus) => pace.speed *= towards(1.0, *to, grown),
                What::Lose { gpus } if shares(gpus, &work.gpus) => pace.speed = 0.0,
                What::Restart { who } if *who == work.name => pace.up = false,
                What::Wedge { who, how, spins } if *who == work.name => pace.wedge = Some((*how, *spins)),
                What::Sleep { who } if *who == work.name => pace.sleeps = true,
                What::Fallback { who, to } if *who == work.name => pace.slower_code *= to,
                What::Mute { who } if *who == work.name => pace.muted = true,
                What::Limit { who, to } if *who == work.name => storage *= towards(1.0, *to, grown),
                What::Fate { who, fate } if *who == work.name => pace.fate = Some(fate.clone()),
                What::Stuck { device } if self.reads.iter().any(|r| r.who == work.name && r.device == *device) => {
                    pace.stuck = Some(self.share(device).is_some());
                }
                _ => {}
            }
        }
        if pace.stuck.is_some() {
            storage = 0.0;
        }
        if pace.fate.is_some() {
            pace.speed = 0.0;
        }
        let (left, want) = self.want(work, second);
        pace.want = want;
        pace.speed *= storage * left;
        pace.storage = 1.0 - storage;
        pace
    }

    pub(crate) fn share(&self, name: &str) -> Option<&Share> {
        self.shares.iter().find(|share| share.name == name)
    }

    /// Whether a device or server answers nothing.
    pub(crate) fn is_stuck(&self, device: &str, second: u64) -> bool {
        self.now(second).any(|what| matches!(what, What::Stuck { device: name } if name == device))
    }

    /// Whether a workload's parent ever dies: then it has one.
    pub(crate) fn has_parent(&self, work: &Work) -> bool {
        let dies = |what: &What| matches!(what, What::Fate { who, fate: Fate::Orphan } if *who == work.name);
        self.events.iter().any(|event| dies(&event.what))
    }

    pub(crate) fn is_lost(&self, gpu: usize, second: u64) -> bool {
        self.now(second).any(|what| matches!(what, What::Lose { gpus } if gpus.contains(&gpu)))
    }

    /// Share of the clock that is left to a GPU, and NVML's reasons.
    pub(crate) fn clock(&self, gpu: usize, second: u64) -> (f64, u64) {
        self.growing(second).fold((1.0, 0), |(share, bits), (what, grown)| match what {
            What::Throttle { gpus, to, reason } if gpus.contains(&gpu) => {
                (f64::min(share, towards(1.0, *to, grown)), bits | reason)
            }
            _ => (share, bits),
        })
    }

    /// The driver's version: the last one that was installed.
    pub(crate) fn driver(&self, second: u64) -> &str {
        let mut driver = "570.148.08";
        for what in self.now(second) {
            if let What::Driver { version } = what {
                driver = version;
            }
        }
        driver
    }

    /// The call that NVML hangs in, and since when.
    #[must_use]
    pub fn nvml_hangs(&self, second: u64) -> Option<(&str, u64)> {
        self.events.iter().filter(|event| event.on(second)).find_map(|event| match &event.what {
            What::HangNvml { call } => Some((call.as_str(), event.at)),
            _ => None,
        })
    }

    /// New error lines of the driver: GPU and code. A GPU that is lost has its 79.
    pub(crate) fn xids(&self, second: u64) -> Vec<(usize, u32)> {
        let starts = self.events.iter().filter(|event| event.at == second);
        starts
            .flat_map(|event| match &event.what {
                What::Xid { gpu, code } => vec![(*gpu, *code)],
                What::Lose { gpus } => gpus.iter().map(|gpu| (*gpu, 79)).collect(),
                _ => Vec::new(),
            })
            .collect()
    }

    pub(crate) fn sync(&self, array: &str, second: u64) -> Option<Sync<'_>> {
        self.events.iter().filter(|event| event.on(second)).find_map(|event| match &event.what {
            What::Sync { array: name, action, speed, done, harm } if name == array => {
                let (age, grown) = (second - event.at, event.grown(second));
                Some(Sync { action: *action, speed: *speed, done: *done, age, harm, grown })
            }
            _ => None,
        })
    }

    /// The last synchronisation of an array that has ended.
    pub(crate) fn last_sync(&self, array: &str, second: u64) -> Option<SyncVerb> {
        let ended = self.events.iter().filter(|event| event.until <= second);
        ended
            .filter_map(|event| match &event.what {
                What::Sync { array: name, action, .. } if name == array => Some((event.until, *action)),
                _ => None,
            })
            .max_by_key(|(until, _)| *until)
            .map(|(_, action)| action)
    }

    /// Members of an array by slot; during and after a rebuild the spare stands in the first one's place.
    pub(crate) fn members<'a>(&self, array: &'a Array, second: u64) -> Members<'a> {
        let rebuild = self.events.iter().filter(|event| event.at <= second).find(|event| {
            matches!(&event.what, What::Sync { array: name, action: SyncVerb::Rebuild, .. } if *name == array.name)
        });
        let mut members = Members {
            slots: array.members.iter().map(String::as_str).collect(),
            faulty: None,
            rebuilding: None,
            spares: array.spares.iter().map(String::as_str).collect(),
        };
        if let (Some(event), false) = (rebuild, members.spares.is_empty()) {
            let spare = members.spares.remove(0);
            members.faulty = members.slots.first().copied();
            if let Some(slot) = members.slots.first_mut() {
                *slot = spare;
            }
            members.rebuilding = event.on(second).then_some(spare);
        }
        members
    }

    /// Extra latency of a device, from its own load and its array's synchronisation.
    pub(crate) fn latency(&self, device: &str, second: u64) -> f64 {
        let of_arrays = self.arrays.iter().filter_map(|array| {
            let inside = array.name == device || self.members(array, second).active().any(|name| name == device);
            let sync = inside.then(|| self.sync(&array.name, second)).flatten()?;
            Some(sync.harm.latency(sync.grown))
        });
        let of_loads = self.growing(second).filter_map(|(what, grown)| match what {
            What::Load { device: name, harm, .. } => {
                let inside = self.arrays.iter().any(|array| {
                    array.name == *name && self.members(array, second).active().any(|member| member == device)
                });
                (name == device || inside).then(|| harm.latency(grown))
            }
            _ => None,
        });
        of_arrays.chain(of_loads).product()
    }

    /// Bytes per second that somebody else moves on a device.
    pub(crate) fn load(&self, device: &str, second: u64) -> f64 {
        self.growing(second)
            .filter_map(|(what, grown)| match what {
                What::Load { device: name, rate, .. } if name == device => Some(*rate * grown),
                _ => None,
            })
            .sum()
    }

    /// The step of the wall clock so far, seconds.
    pub(crate) fn clock_step(&self, second: u64) -> i64 {
        self.now(second).map(|what| if let What::Clock { by } = what { *by } else { 0 }).sum()
    }

    /// How often the counters of a workload's page have begun anew by themselves.
    pub(crate) fn resets(&self, work: &Work, second: u64) -> u64 {
        let resets = self.events.iter().filter(|event| event.at <= second);
        let of_it = resets.filter(|event| matches!(&event.what, What::Reset { who } if *who == work.name));
        u64::try_from(of_it.count()).unwrap_or(0)
    }

    /// How often a workload's process has started again.
    pub(crate) fn restarts(&self, work: &Work, second: u64) -> u64 {
        let begins = |what: &What| match what {
            What::Restart { who } | What::Node(NodeEvent::Start { who, .. }) => *who == work.name,
            _ => false,
        };
        let begun = self.events.iter().filter(|event| event.at <= second && begins(&event.what));
        u64::try_from(begun.count()).unwrap_or(0)
    }
}

/// Who is in an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Members<'a> {
    /// By slot, the one that is being rebuilt included.
    pub(crate) slots: Vec<&'a str>,
    pub(crate) faulty: Option<&'a str>,
    pub(crate) rebuilding: Option<&'a str>,
    pub(crate) spares: Vec<&'a str>,
}

impl<'a> Members<'a> {
    /// Those that hold data or are being filled.
    pub(crate) fn active(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.slots.iter().copied()
    }
    /// Those that answer reads.
    pub(crate) fn in_sync(&self) -> impl Iterator<Item = &'a str> + '_ {
        let rebuilding = self.rebuilding;
        self.slots.iter().copied().filter(move |name| Some(*name) != rebuilding)
    }
}

fn shares(some: &[usize], others: &[usize]) -> bool {
    some.iter().any(|gpu| others.contains(gpu))
}
