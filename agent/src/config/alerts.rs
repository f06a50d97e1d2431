//! The section of alerts, and the labels of the site. What is wrong with a label or an instant is refused where it
//! stands, with line and column.

use std::collections::BTreeMap;
use std::fmt;

use gpuprod_snapshot::units::Nanos;

use serde::{Deserialize, Serialize};

use super::duration;
use serde::de::{self, Deserializer, MapAccess, Visitor};

/// Alerts: what of the findings becomes one, and where it is posted beside the shipped Prometheus rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Alerts {
    /// Base URLs; each gets every alert. None: nothing is posted.
    pub alertmanagers: Vec<String>,
    /// The node's name in alerts; by default its host name.
    pub node: Option<String>,
    /// How often a firing alert is posted again.
    #[serde(with = "duration")]
    pub repeat: Nanos,
    /// How long after a finding's end its alert is resolved.
    #[serde(with = "duration")]
    pub resolve_after: Nanos,
    /// Most pages that begin within an hour; what is above goes as a ticket.
    pub max_pages_per_hour: u32,
    /// Maintenance windows: no alert.
    pub silence: Vec<Silence>,
}

impl Default for Alerts {
    fn default() -> Self {
        Self {
            alertmanagers: Vec::new(),
            node: None,
            repeat: Nanos::from_secs(60),
            resolve_after: Nanos::from_secs(180),
            max_pages_per_hour: 6,
            silence: Vec::new(),
        }
    }
}

/// A maintenance window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Silence {
    /// Its first instant, Unix time.
    #[serde(with = "instant")]
    pub from: Nanos,
    /// The first instant after it.
    #[serde(with = "instant")]
    pub to: Nanos,
}

/// Labels that an alert has already, and those that Prometheus sets or that would make each value another alert.
const TAKEN: &[&str] =
    &["alertname", "node", "object", "rule", "mode", "job", "instance", "severity", "variant", "prometheus", "replica"];
/// Longest value, in characters.
const LONGEST: usize = 256;

/// The name of a label; only good ones are made.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Name(String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        good_name(&name).map_err(de::Error::custom)?;
        Ok(Self(name))
    }
}

/// The value of a label; only good ones are made.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() {
            return Err(de::Error::custom("a label without a value is no label: remove it"));
        }
        if text.chars().count() > LONGEST || text.chars().any(char::is_control) {
            return Err(de::Error::custom(format!(
                "the value of a label has at most {LONGEST} characters and no control characters"
            )));
        }
        Ok(Self(text))
    }
}

fn good_name(name: &str) -> Result<(), String> {
    let mut chars = name.chars();
    let first = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if !first || !chars.all(|c| c.is_ascii_alphanumeric() || c == '_') || name.starts_with("__") {
        return Err(format!("{name:?} is no label: letters, digits and _, not a digit first, no __ first"));
    }
    if TAKEN.contains(&name) {
        return Err(format!("the label {name} is taken; taken are {}", TAKEN.join(", ")));
    }
    Ok(())
}

/// For `#[serde(deserialize_with)]`.
pub(super) fn labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Labels;
    impl<'de> Visitor<'de> for Labels {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map of name to text, for example {cluster: a}")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut labels = BTreeMap::new();
            while let Some((Name(name), Text(text))) = map.next_entry()? {
                labels.insert(name, text);
            }
            Ok(labels)
        }
    }
    deserializer.deserialize_map(Labels)
}

/// Instants as RFC 3339 writes them, for `#[serde(with)]`.
pub(crate) mod instant {
    use gpuprod_snapshot::units::Nanos;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    use crate::text;

    pub(super) fn serialize<S: Serializer>(value: &Nanos, serializer: S) -> Result<S::Ok, S::Error> {
        text::utc(*value).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Nanos, D::Error> {
        let written = String::deserialize(deserializer)?;
        text::instant(&written).map_err(de::Error::custom)
    }

    /// The same where none need stand.
    pub(crate) mod maybe {
        use gpuprod_snapshot::units::Nanos;
        use serde::{Deserializer, Serialize, Serializer};

        use crate::text;

        #[expect(clippy::ref_option, reason = "serde hands it over so")]
        pub(crate) fn serialize<S: Serializer>(value: &Option<Nanos>, serializer: S) -> Result<S::Ok, S::Error> {
            value.map(text::utc).serialize(serializer)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Nanos>, D::Error> {
            super::deserialize(deserializer).map(Some)
        }
    }
}
