//! What the readings mean: windows, states, rules, blame, and the ledger.
//!
//! One way through: [`Judge::step`] takes a tick and gives a [`Judgement`]; [`Ledger::charge`] books the time
//! that it covers. Both are pure: no clock, no file, no thread and no random order can even be named here, so
//! that live and replay are the same code and the same recording gives the same bytes.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod attribution;
mod baseline;
mod course;
mod doubt;
mod entries;
mod externality;
mod facts;
pub mod fgd;
mod fingerprint;
mod gather;
mod hold;
mod holders;
mod join;
mod judge;
mod judgement;
mod kin;
pub mod ledger;
mod merge;
pub mod node;
mod number;
mod order;
mod peers;
pub mod placement;
mod policy;
mod reading;
mod rule;
mod serving;
mod signals;
mod state;
mod tenancy;
mod tenant_io;
mod unit;
mod usage;
mod vital;
mod wait;
mod weight;
mod window;
mod words;

pub use judge::Judge;
pub use judgement::{
    Evidence, External, Finding, Holder, Judgement, Meter, Normal, Probe, Rejected, RuleReport, RuleStatus, Severity,
    TenantIo, UnitId, UnitJudgement,
};
pub use ledger::Ledger;
pub use number::{Micro, Part};
pub use policy::{Allocation, Declared, KvBytes, Policy, Shape, Threshold};
pub use rule::{Claim, Outcome, RULES, Rule, Text, View};
pub use serving::{KvSize, KvSource, Serving};
pub use tenancy::{ClassRule, Tenancy, TenantBy, like};
pub use vital::{Vital, VitalKind};
pub use words::{
    Bucket, Cause, Class, Fault, Gate, Loading, Overhead, Progress, RuleId, State, Unknown, Weight, WeightSource,
};
