//! Host or GPU memory that runs out: a steady growth with its end in sight, a kill, or a node short of memory.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gpuprod_snapshot::units::{Nanos, to_f64};

use super::around::{self, percent, raised};
use super::{Claim, Outcome, Text, View};
use crate::attribution::{Candidate, Link, Saturation};
use crate::policy::table::thresholds;
use crate::signals::host::{Growth, Trend, Workload};
use crate::{Cause, Evidence, Part, Severity};

thresholds! {
    /// Thresholds of `memory_leak`.
    pub struct Thresholds {
        /// How well a line must fit half an hour of growth (coefficient of determination), in millionths. A sawtooth
        /// of a garbage collector or of batches fits worse; a leak grows with the work, nearly straight.
        fit: Part = Part(900_000), Part(0)..=Part(1_000_001);
        /// Memory must run out within so long: less than a night, so that somebody can act in time.
        ends_within_ns: Nanos = Nanos::from_secs(21_600), Nanos(0)..=Nanos::from_secs(604_800);
        /// The last ten minutes must grow at this part of the whole slope, in millionths: what has stopped is no leak.
        still_grows: Part = Part(500_000), Part(0)..=Part::ONE;
        /// Share of time in which a thread of the workload waits for memory from which the node is short, in
        /// millionths. Reclaim that stops a task for a fifth of its time (kernel, accounting/psi), as for
        /// io_stall.wait_some.
        wait_some: Part = Part(200_000), Part(0)..=Part(1_000_001);
        /// A kill by the kernel is told for so long. Two scrapes of the usual 30 s must see it.
        killed_ns: Nanos = Nanos::from_secs(60), Nanos::from_secs(1)..=Nanos::from_secs(86_400);
    }
}

pub(super) const TEXT: Text = Text {
    means: "Memory runs out: of the workload's cgroup, of the node, or of the GPU; or the kernel has killed for want of it.",
    inputs: "Memory of the workload's processes that no file backs, limit and oom_kill of its cgroup, memory available on the \
             node, memory in use on the GPU, PSI memory.",
    formula: "Over half an hour the slope by Theil and Sen is above zero, a line fits (fit), the last third still grows \
              (still_grows), and what is left ends within ends_within_ns (host, gpu); or the memory of the workload's \
              processes grew along one line for five minutes and more, and what is left ends sooner than it has \
              grown (host). A kill is critical for killed_ns (oom_kill). Threads that wait for memory (wait_some) out of their own normal, before or with a loss of progress, \
              for starved_for_ns: cause host_mem (pressure).",
    silent: "Loading, page cache and mapped files, growth that has stopped, growth whose end is far, a drop (it was let go).",
    advice: "Restart the workload before the hour named; look for what it keeps; raise the limit.",
    blind: "A leak below the noise of half an hour; a buffer that fills most of the room and stops looks like a leak until \
            then; memory of processes that are not in focus.",
};

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let signals = &view.host.signals.host;
    if view.unit.work.family.is_empty() {
        return Outcome::Absent;
    }
    let workload = view.unit.work.ties.cgroup.as_ref().and_then(|path| Some((path, signals.workloads.get(path)?)));
    let told = workload.and_then(|(path, workload)| killed(view, path, workload).or_else(|| pressure(view)));
    if let Some(claim) = told {
        return Outcome::Claim(claim);
    }
    if view.unit.host.loads.current.is_some() {
        return Outcome::Suspended("it is loading".into());
    }
    let board = view.unit.gpu.and_then(|gpu| Some((gpu, signals.boards.get(gpu.uuid.get()?)?)));
    let host = workload.and_then(|(path, workload)| host_leak(view, path, &workload.anonymous));
    let gpu = board.and_then(|(gpu, growth)| gpu_leak(view, gpu, growth));
    if let Some(claim) = host.or(gpu) {
        return Outcome::Claim(claim);
    }
    let series = [workload.map(|(_, workload)| &workload.anonymous), board.map(|(_, growth)| growth)];
    let series = series.into_iter().flatten();
    match series.clone().map(Growth::minutes).max() {
        None => {
            Outcome::Unsupported("neither the memory of the workload's processes nor that of the GPU is read".into())
        }
        Some(minutes) if !series.clone().any(Growth::is_full) => {
            let known = [&minutes.to_string(), " minutes of its memory are known, and half an hour is needed"].concat();
            Outcome::Suspended(known.into())
        }
        Some(_) => Outcome::Silent,
    }
}

/// A growth whose end is near, and in how many seconds.
fn ends(view: &View<'_>, growth: &Growth, left: f64, short: bool) -> Option<(Trend, f64)> {
    far_end(view, growth, left).or_else(|| near_end(view, growth.short().filter(|_| short)?, left))
}

/// By the trend of half an hour.
fn far_end(view: &View<'_>, growth: &Growth, left: f64) -> Option<(Trend, f64)> {
    let thresholds = &view.policy.memory_leak;
    let trend = growth.trend()?;
    let grows = trend.slope > 0.0 && trend.late >= trend.slope * thresholds.still_grows.as_fraction();
    let end = left.max(0.0) / trend.slope.max(f64::MIN_POSITIVE);
    // To stay takes a little less than to be told: the end comes nearer in any case.
    let within = thresholds.ends_within_ns.as_secs_f64() * if view.active { 1.2 } else { 1.0 };
    (grows && trend.fit >= thresholds.fit.as_fraction() && end <= within).then_some((trend, end))
}

/// By a few minutes: a growth that has taken more than it left is over before half an hour of it is known.
fn near_end(view: &View<'_>, trend: Trend, left: f64) -> Option<(Trend, f64)> {
    let end = left.max(0.0) / trend.slope.max(f64::MIN_POSITIVE);
    let known = view.host.now.saturating_sub(trend.since).as_secs_f64() * if view.active { 1.2 } else { 1.0 };
    (trend.slope > 0.0 && end <= known).then_some((trend, end))
}

fn host_leak(view: &View<'_>, path: &str, growth: &Growth) -> Option<Claim> {
    let last = growth.trend().or(growth.short())?.last;
    let available = view.host.around.cpu.and_then(|cpu| cpu.mem_available.copied()).map(|bytes| to_f64(bytes.0));
    let of_limit = view.unit.work.ties.mem_limit.map(|limit| limit - last);
    let (left, of) = match (of_limit, available) {
        (Some(limit), Some(node)) if limit > node => (node, "of the node"),
        (Some(limit), _) => (limit, "of its cgroup's limit"),
        (None, Some(node)) => (node, "of the node"),
        (None, None) => return None,
    };
    let (trend, end) = ends(view, growth, left, true)?;
    Some(leak("host", format!("memory:{path}"), path, (trend, end), left, of))
}

fn gpu_leak(view: &View<'_>, gpu: &gpuprod_snapshot::gpu::Gpu, growth: &Growth) -> Option<Claim> {
    let reserved = gpu.mem_reserved.copied().map_or(0.0, |bytes| to_f64(bytes.0));
    let left = to_f64(gpu.mem_total.copied()?.0) - reserved - growth.trend()?.last;
    let name = &view.unit.name;
    // An allocator that caches fills the GPU and stops: only half an hour tells it from a leak.
    let found = ends(view, growth, left, false)?;
    Some(leak("gpu", format!("memory:{name}"), name, found, left, "of the GPU"))
}

fn leak(variant: &str, object: String, of: &str, (trend, end): (Trend, f64), left: f64, whose: &str) -> Claim {
    let gigabytes = |bytes: f64| bytes / 1e9;
    let minutes = trend.points.saturating_sub(1) / 2;
    let evidence = alloc::vec![
        Evidence::plain(format!("growth over {minutes} minutes"), of, trend.slope * 3600.0 / 1e9, "GB/h"),
        Evidence::plain("growth over the last third of them", of, trend.late * 3600.0 / 1e9, "GB/h"),
        Evidence::plain("fit of the line (R²)", of, trend.fit, ""),
        Evidence::plain("memory in use", of, gigabytes(trend.last), "GB"),
        Evidence::plain(format!("memory left {whose}"), of, gigabytes(left), "GB"),
        Evidence::plain("runs out in", of, end / 3600.0, "h"),
    ];
    Claim {
        variant: Some(variant.into()),
        severity: Severity::Warn,
        // Nobody has lost anything yet.
        cause: None,
        deficit: Part(0),
        onset: trend.since,
        pressure: Part(0),
        confidence: Part::from_fraction(trend.fit * 0.9),
        summary: format!(
            "memory of {of} grows by {} GB an hour and will be used up in {} hours: {} GB are left {whose}",
            crate::Micro::from_f64(trend.slope * 3600.0 / 1e9),
            crate::Micro::from_f64(end / 3600.0),
            crate::Micro::from_f64(gigabytes(left))
        ),
        evidence,
        rejected: Vec::new(),
        advice: format!(
            "restart {of} at a quiet moment before then; a heap profile of what it keeps (memray, torch.cuda.memory_snapshot) finds the reason"
        ),
        object,
        holders: Vec::new(),
    }
}

fn killed(view: &View<'_>, path: &str, workload: &Workload) -> Option<Claim> {
    let at = workload.oom_killed?;
    let age = view.host.now.saturating_sub(at);
    (age < view.policy.memory_leak.killed_ns).then(|| Claim {
        variant: Some("oom_kill".into()),
        severity: Severity::Critical,
        cause: None,
        object: format!("memory:{path}"),
        deficit: Part(0),
        onset: at,
        pressure: Part(0),
        confidence: Part::from_fraction(0.95),
        summary: format!("the kernel killed a process of {path} for want of memory"),
        evidence: limit_evidence(view, path, workload),
        rejected: Vec::new(),
        advice: format!(
            "look at the kernel log (`dmesg | grep -i oom`) and at what is left of the job; raise the limit of {path} or find what fills it"
        ),
        holders: Vec::new(),
    })
}

fn limit_evidence(view: &View<'_>, path: &str, workload: &Workload) -> Vec<Evidence> {
    let own =
        workload.anonymous.trend().map(|trend| Evidence::plain("memory of its own", path, trend.last / 1e9, "GB"));
    let limit =
        view.unit.work.ties.mem_limit.map(|limit| Evidence::plain("limit of its cgroup", path, limit / 1e9, "GB"));
    own.into_iter().chain(limit).chain([Evidence::plain("kills since the last look", path, 1.0, "or more")]).collect()
}

/// Threads wait while pages are reclaimed, and progress is lost.
fn pressure(view: &View<'_>) -> Option<Claim> {
    let claim = around::blame(view, Some("pressure"), candidate(view)?).ok()?;
    // A block in which everything came together may be chance.
    let held = view.host.now.saturating_sub(claim.onset) >= view.policy.starved_for_ns;
    (view.active || held).then_some(claim)
}

/// The wait for memory of the workload's own cgroup.
pub(crate) fn candidate(view: &View<'_>) -> Option<Candidate> {
    let path = view.unit.work.ties.cgroup.as_deref()?;
    let workload = view.host.signals.host.workloads.get(path)?;
    let wait = raised(view, &workload.mem_wait, view.policy.memory_leak.wait_some.as_fraction()).ok()?;
    let mut evidence = alloc::vec![wait.evidence("some thread waited for memory", path, 100.0, "%")];
    if let Some(available) = view.host.around.cpu.and_then(|cpu| cpu.mem_available.copied()) {
        evidence.push(Evidence::plain("memory available", "node", to_f64(available.0) / 1e9, "GB"));
    }
    Some(Candidate {
        cause: Cause::HostMem,
        object: format!("memory:{path}"),
        onset: wait.onset,
        pressure: Part::from_fraction(wait.value),
        saturation: Saturation::of(1),
        link: Link::Proven,
        uses: |unit, object| object.strip_prefix("memory:") == unit.work.ties.cgroup.as_deref(),
        evidence,
        says: format!("threads of {path} wait for memory {} of the time", percent(wait.value)),
        advice: format!(
            "see who takes the memory (`systemd-cgtop -m`, memory.stat of {path}), protect the workload with memory.low, or move one of the two"
        ),
        series: wait.series,
        switch: wait.switch,
    })
}
