//! What the judge says of one tick.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use gpuprod_snapshot::Stamp;
use gpuprod_snapshot::units::{Bytes, Millijoules, Milliwatts, Nanos};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::node::NodeJudgement;
use crate::{Bucket, Cause, Class, Micro, Part, RuleId, Serving, State, Vital, Weight};

/// The identity of an accounting unit: the UUID of a GPU or MIG instance, `GPU-…/rest` for the unpartitioned
/// rest of a GPU, or its PCI address when the UUID was never known. Every rule's report names it: a copy is a pointer.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId(pub Arc<str>);

impl Serialize for UnitId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for UnitId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|id| Self(id.into()))
    }
}

/// In the same order as the text itself.
impl core::borrow::Borrow<str> for UnitId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl core::fmt::Display for UnitId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(&self.0)
    }
}

/// Everything that was decided on one tick.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The tick's time.
    pub stamp: Stamp,
    /// The tick's nominal length.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// Every known unit, by id; a unit that was lost stays.
    pub units: Vec<UnitJudgement>,
    /// Active findings: one per rule and cause object, most severe first.
    pub findings: Vec<Finding>,
    /// Whether each rule could speak, per unit.
    pub rules: Vec<RuleReport>,
    /// Sources that do not come back.
    pub probes: Vec<Probe>,
    /// What was learnt, beside what is.
    #[serde(default)]
    pub vitals: Vec<Vital>,
    /// Engines as capacity planning sees them.
    #[serde(default)]
    pub serving: Vec<Serving>,
    /// What tenants read and wrote since the sample of the cgroups before; only when there is a new one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub io: Vec<TenantIo>,
    /// The node as a whole.
    #[serde(default)]
    pub node: NodeJudgement,
}

/// The verdict on one unit for the time since the tick before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitJudgement {
    /// Which unit.
    pub unit: UnitId,
    /// The GPU that it is a part of, for a MIG instance or the unpartitioned rest; none for a whole GPU. Units of
    /// one GPU replace each other in the ledger when the GPU is repartitioned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<UnitId>,
    /// NVML's index, for people; missing for a unit that NVML does not list any more.
    pub index: Option<u32>,
    /// Slices that it has of the whole GPU (a full GPU: all).
    pub slices: u32,
    /// Slices of the whole GPU (1 without MIG).
    pub slices_whole: u32,
    /// Its one state.
    #[serde(flatten)]
    pub state: State,
    /// In this state since (CLOCK_BOOTTIME).
    #[serde(rename = "since_ns")]
    pub since: Nanos,
    /// How productive over the last seconds, and on whose word.
    pub weight: Weight,
    /// How the tick's time is split. The parts sum to one exactly; `Productive` carries the work of this very tick.
    pub split: Vec<(Bucket, Part)>,
    /// Whether every source of the weight is a counter, so that a step of up to 10 s can still be booked.
    pub cumulative: bool,
    /// What the unit is for.
    pub class: Class,
    /// Whether the class was inferred and not declared.
    pub class_inferred: bool,
    /// Whose it is, when one owner holds it alone.
    pub tenant: Option<String>,
    /// Whose it is to which part, where several share it: by their work, and while none is done by the memory that
    /// they hold. The parts sum to one; a part without a name is nobody's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<(Option<String>, Part)>,
    /// The GPU's product name, for prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Of what was lost to a cause, what another tenant's use has caused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub external: Vec<External>,
    /// What the whole GPU of the unit draws, the same for all units of it; none where nothing tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meter: Option<Meter>,
}

/// What tells the energy of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Meter {
    /// The driver's counter.
    #[serde(rename = "counter_mj")]
    Counter(Millijoules),
    /// Board power, of a GPU without a counter.
    #[serde(rename = "power_mw")]
    Power(Milliwatts),
}

/// What a tenant read from storage and wrote there.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TenantIo {
    /// Who; none when that has no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Bytes read.
    #[serde(rename = "read_bytes")]
    pub read: Bytes,
    /// Bytes written.
    #[serde(rename = "written_bytes")]
    pub written: Bytes,
}

/// Who carries a part of a loss.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct External {
    /// What it used.
    pub resource: Cause,
    /// Whose use it was.
    pub tenant: String,
    /// Its part of what was lost to this cause. The parts of a cause sum to one at most.
    pub part: Part,
}

/// How bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; blames nobody.
    Info,
    /// Costs something.
    Warn,
    /// Costs much, now.
    Critical,
}

impl Severity {
    /// The word in JSON, series and text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Critical => "critical",
        }
    }
}

/// A rule's verdict about one cause object, with its victims and the evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Which rule.
    pub rule: RuleId,
    /// Which of its variants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// How bad.
    pub severity: Severity,
    /// The cause object: an array, a disk, a GPU, a file system (`md0`).
    pub subject: String,
    /// Units that suffer from it.
    pub victims: Vec<UnitId>,
    /// First bad block, CLOCK_BOOTTIME: an estimate, nothing is booked back to it.
    #[serde(rename = "onset_ns")]
    pub onset: Nanos,
    /// Confirmed at, CLOCK_BOOTTIME.
    #[serde(rename = "since_ns")]
    pub since: Nanos,
    /// The same instant of the wall clock.
    #[serde(rename = "since_realtime_ns")]
    pub since_realtime: Nanos,
    /// How sure.
    pub confidence: Part,
    /// What it did to the victims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// In one sentence, with the numbers that matter.
    pub summary: String,
    /// What it rests on.
    pub evidence: Vec<Evidence>,
    /// What else it could have been, and why it is not.
    pub rejected: Vec<Rejected>,
    /// GPU time that the cause has cost all victims since it was confirmed; before that it is unexplained.
    #[serde(default, rename = "lost_ns", skip_serializing_if = "nothing")]
    pub lost: Nanos,
    /// Other rules that saw the same (the wrapper that names the effect).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<RuleId>,
    /// What to do.
    pub advice: String,
    /// Which processes it is about. Not for everybody: pids, commands and users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Holder>,
}

/// What the evidence calls the GPU time that will be lost, in GPU-hours.
pub(crate) const AHEAD: &str = "will be lost until the wall limit of its job, if nobody ends it";

impl Finding {
    /// GPU time that will be lost until the wall limit of the job, if nobody ends it; none where no limit is known.
    #[must_use]
    pub fn ahead(&self) -> Option<Nanos> {
        let hours = self.evidence.iter().find(|evidence| evidence.what == AHEAD)?.value;
        // A millionth of an hour is 3.6 ms.
        u64::try_from(hours.0).ok().map(|hours| Nanos(hours.saturating_mul(3_600_000)))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn nothing(lost: &Nanos) -> bool {
    lost.0 == 0
}

/// A process that holds a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its pid.
    pub pid: u32,
    /// Its name as the kernel keeps it; empty when it cannot be read.
    pub comm: String,
    /// Its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Its state letter; none for one that is not in the process table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<char>,
    /// Its cgroup; empty when it cannot be read.
    pub cgroup: String,
}

/// One reading that a verdict rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// What was read (`decode rate`, `member await`).
    pub what: Cow<'static, str>,
    /// Of what (`GPU-3`, `md0`, `nvme1n1`).
    pub of: String,
    /// Its value.
    pub value: Micro,
    /// The value's unit (`tok/s`, `ms`, `%`).
    pub unit: Cow<'static, str>,
    /// Its own normal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normal: Option<Normal>,
}

impl Evidence {
    /// A reading without a normal of its own.
    pub(crate) fn plain(
        what: impl Into<Cow<'static, str>>,
        of: &str,
        value: f64,
        unit: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { what: what.into(), of: of.into(), value: Micro::from_f64(value), unit: unit.into(), normal: None }
    }
}

/// Own normal of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Normal {
    /// Median of the healthy blocks.
    pub median: Micro,
    /// 1.4826 times their median absolute deviation.
    pub spread: Micro,
    /// Healthy blocks.
    pub n: u32,
    /// Distance in spreads.
    pub z: Micro,
}

/// A cause that was looked at and is not it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rejected {
    /// Which cause.
    pub cause: Cause,
    /// Which object, if one was meant.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub of: String,
    /// Why not, with the number.
    pub why: String,
}

/// Whether a rule could speak about a unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuleReport {
    /// Which rule.
    pub rule: RuleId,
    /// About which unit.
    pub unit: UnitId,
    /// Whether it could speak.
    #[serde(flatten)]
    pub status: RuleStatus,
    /// Whether it is active for the unit now.
    pub active: bool,
}

/// Whether a rule could speak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", content = "why", rename_all = "lowercase")]
pub enum RuleStatus {
    /// It had what it needs.
    Evaluated,
    /// It lacks a reading that this node does not have.
    Unsupported(Cow<'static, str>),
    /// What it is about does not exist here.
    Absent,
    /// It has not learnt its baseline yet, or readings are missing for the moment.
    Suspended(Cow<'static, str>),
}

/// A source whose read has not come back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Which source.
    pub collector: String,
    /// The call that is stuck.
    pub call: String,
    /// For how long.
    #[serde(rename = "age_ns")]
    pub age: Nanos,
}
