//! What the agent knows of itself and shows with every frame: its configuration's fate, a lease of the GPUs, how its
//! metrics are delivered, and how the store does.

use std::collections::BTreeMap;

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::cost::Cost;
use crate::prices::Priced;
use crate::store::Status;

/// With every frame of an agent; all empty in a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Own {
    /// What came of the configuration.
    pub config: ConfigState,
    /// While the driver's handles are let go of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// How metrics are delivered by OTLP; none where no endpoint is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp: Option<Otlp>,
    /// How the store does; none without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<Status>,
    /// Prices in force for this node's GPUs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prices: Vec<Priced>,
    /// What the findings have cost at these prices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<Cost>,
    /// Names of tenants stay on the node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tenants_hidden: bool,
}

/// What came of the configuration since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigState {
    /// When the one in force was read (CLOCK_REALTIME); 0 where there is no agent.
    #[serde(rename = "taken_realtime_ns")]
    pub taken: Nanos,
    /// Files that were taken over without a restart.
    pub reloads: u64,
    /// Files that were refused: the one before stays in force.
    pub failures: u64,
    /// The last file was refused.
    pub refused: bool,
    /// Keys that the last file changes and that only a restart takes over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restart_for: Vec<String>,
}

/// A time for which the agent keeps its hands off the driver (`gpuprod release-gpu`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Asked for at (CLOCK_BOOTTIME).
    #[serde(rename = "since_ns")]
    pub since: Nanos,
    /// Ends by itself at (CLOCK_BOOTTIME).
    #[serde(rename = "until_ns")]
    pub until: Nanos,
}

/// Delivery of metrics by OTLP since the process began. A batch is one export of every series.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Otlp {
    /// Batches that the peer took.
    pub sent: u64,
    /// Attempts that failed, by what failed.
    pub failed: BTreeMap<Failure, u64>,
    /// Batches given up.
    pub dropped: BTreeMap<Drop, u64>,
    /// Points that the peer left out of batches that it took.
    pub rejected: u64,
    /// Bytes that wait, compressed.
    pub queue_bytes: u64,
    /// When the peer last took a batch, CLOCK_BOOTTIME; none before the first.
    #[serde(rename = "success_ns", skip_serializing_if = "Option::is_none")]
    pub success: Option<Nanos>,
}

macro_rules! reasons {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name { $($(#[$doc])* #[serde(rename = $word)] $variant,)+ }

        impl $name {
            /// The word in series and messages.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }
    };
}

reasons! {
    /// Why an attempt to deliver failed.
    Failure {
        /// No connection: refused, unknown host, no route, a certificate that does not hold.
        Connect = "connect",
        /// No answer in time.
        Timeout = "timeout",
        /// The connection broke before the answer was complete.
        Broken = "broken",
        /// The peer asks to come later: 408, 429, 502, 503, 504.
        Busy = "busy",
        /// Another error of the peer's own: the rest of 5xx.
        Server = "server",
        /// It answers with a redirect, which is not followed.
        Redirect = "redirect",
        /// It does not know us, or not this address: 401, 403, 404, 405, 407.
        Denied = "denied",
        /// It refuses this batch: the rest of 4xx.
        Refused = "refused",
    }
}

reasons! {
    /// Why a batch was given up.
    Drop {
        /// The queue is full: the oldest went.
        Full = "full",
        /// The peer refused it.
        Refused = "refused",
    }
}
