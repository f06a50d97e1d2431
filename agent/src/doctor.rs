//! What each source can and cannot see here, why, and the command that mends it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gpuprod_snapshot::{Missing, Source, Tick};
use serde::Serialize;
use serde_json::Value;

use crate::{seen, text};

/// The diagnosis of one source.
#[derive(Debug, Serialize)]
pub struct Diagnosis {
    /// Which source.
    pub source: &'static str,
    /// `works`, the reason why it gives nothing, or `not_read` when this version does not read it.
    pub status: &'static str,
    /// How long the read took.
    pub took_ns: u64,
    /// What it shows, or why it shows nothing.
    pub says: Vec<String>,
    /// Fields without a value: path, reason, how many.
    pub blind: Vec<Blind>,
    /// What mends it.
    pub mend: Option<String>,
}

/// A field that has no value in some objects.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Blind {
    /// Its path in the tick (`devices[].clock_sm`).
    pub field: String,
    /// Why.
    pub reason: String,
    /// In how many objects.
    pub count: u32,
}

/// Source, reason, and the command.
const MEND: &[(Source, Missing, &str)] = &[
    (
        Source::Gpu,
        Missing::Unsupported,
        "install the NVIDIA driver, or name its library: --nvml-library /path/libnvidia-ml.so.1",
    ),
    (Source::Gpu, Missing::Denied, "run as root, or let the user open /dev/nvidia*: ls -l /dev/nvidia*"),
    (
        Source::Gpu,
        Missing::TimedOut,
        "the driver does not answer: look for Xid lines with `dmesg | grep NVRM`; a reboot is the usual remedy",
    ),
    (
        Source::Xid,
        Missing::Denied,
        "run as root, or grant the kernel log: setcap cap_syslog+ep \"$(command -v gpuprod)\"",
    ),
    (Source::Xid, Missing::Unsupported, "give the container the kernel log: --device /dev/kmsg"),
    (Source::Psi, Missing::Unsupported, "boot the kernel with psi=1"),
    (Source::Proc, Missing::Denied, "run as root: other users' processes are hidden (ProtectProc=, hidepid=)"),
    (Source::Cgroup, Missing::Denied, "run as root"),
    (Source::Block, Missing::Denied, "run as root"),
];

/// Of every source, in order.
#[must_use]
pub fn diagnose(tick: &Tick) -> Vec<Diagnosis> {
    let whole = serde_json::to_value(tick).unwrap_or_default();
    let one = |source: &Source| {
        let name = source.as_str();
        let Some(sample) = tick.status(*source) else {
            return Diagnosis {
                source: name,
                status: "not_read",
                took_ns: 0,
                says: vec!["this version does not read it".to_owned()],
                blind: Vec::new(),
                mend: None,
            };
        };
        let missing = sample.value.missing();
        let blind = whole
            .get(name)
            .and_then(|sample| sample.get("value"))
            .filter(|_| missing.is_none())
            .map(blind_fields)
            .unwrap_or_default();
        let mend = |missing| {
            let row = MEND.iter().find(|(s, m, _)| (*s, *m) == (*source, missing));
            row.map(|(.., command)| (*command).to_owned())
        };
        let mut says = seen::of(tick, *source);
        let hint = missing.and_then(|missing| hint(&sample.why, missing)).map(text::clean);
        let known = missing.or_else(|| blind_denied(&blind)).and_then(mend);
        // What fails in NVML has many causes behind one reason: only the error knows which it was.
        let (first, second) = if *source == Source::Gpu { (hint.clone(), known) } else { (known, hint.clone()) };
        let mend = first.or(second);
        if let (Some(line), Some(hint)) = (says.first_mut(), hint.filter(|hint| mend.as_ref() == Some(hint))) {
            // Said once: as what mends it.
            *line = line.strip_suffix(&format!("; {hint}")).unwrap_or(line).to_owned();
        }
        Diagnosis {
            source: name,
            status: missing.map_or("works", Missing::as_str),
            took_ns: sample.took.0,
            says,
            mend,
            blind,
        }
    };
    Source::ALL.iter().map(one).collect()
}

/// The error's own advice: `TRIED: REASON (CAUSE); ADVICE`, as [`gpuprod_collectors::CollectError`] prints itself.
fn hint(why: &str, missing: Missing) -> Option<&str> {
    let (_, rest) = why.split_once(&format!(": {missing}"))?;
    rest.split_once("; ").map(|(_, hint)| hint)
}

fn blind_denied(blind: &[Blind]) -> Option<Missing> {
    let denied = |blind: &Blind| blind.reason == Missing::Denied.as_str();
    blind.iter().any(denied).then_some(Missing::Denied)
}

/// Every `{"missing": reason}` below a value, objects of a list taken together.
fn blind_fields(value: &Value) -> Vec<Blind> {
    let mut found = BTreeMap::new();
    walk(value, &mut String::new(), &mut found);
    let blind = |((field, reason), count)| Blind { field, reason, count };
    found.into_iter().map(blind).collect()
}

fn walk(value: &Value, path: &mut String, found: &mut BTreeMap<(String, String), u32>) {
    let length = path.len();
    match value {
        Value::Object(object) => {
            if let (1, Some(Value::String(reason))) = (object.len(), object.get("missing")) {
                *found.entry((path.clone(), reason.clone())).or_default() += 1;
                return;
            }
            for (name, below) in object {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                walk(below, path, found);
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            path.push_str("[]");
            for below in items {
                walk(below, path, found);
            }
            path.truncate(length);
        }
        _ => {}
    }
}

/// As text.
#[must_use]
pub fn page(diagnoses: &[Diagnosis]) -> String {
    let mut out = String::new();
    for diagnosis in diagnoses {
        let took = text::duration(gpuprod_snapshot::units::Nanos(diagnosis.took_ns));
        let _ = writeln!(out, "{:<8}{:<12}{took:>8}", diagnosis.source, diagnosis.status);
        for line in &diagnosis.says {
            let _ = writeln!(out, "        {line}");
        }
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for blind in &diagnosis.blind {
            reasons.entry(&blind.reason).or_default().push(&blind.field);
        }
        for (reason, fields) in reasons {
            let shown: Vec<&str> = fields.iter().take(FIELDS).copied().collect();
            let more = match fields.len().saturating_sub(FIELDS) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let _ = writeln!(out, "        without {} ({reason}){more}", shown.join(", "));
        }
        if let Some(mend) = &diagnosis.mend {
            let _ = writeln!(out, "        mend: {mend}");
        }
    }
    out
}

/// So many fields are named per reason; `--json` has all.
const FIELDS: usize = 6;

#[cfg(test)]
mod tests {
    use gpuprod_collectors::CollectError;
    use gpuprod_snapshot::units::Nanos;
    use gpuprod_snapshot::{Reading, Sample};

    use super::*;

    #[test]
    fn the_errors_own_advice_is_found() {
        let error = || CollectError::new(Missing::Unsupported, "ask: somebody");
        assert_eq!(hint(&error().to_string(), Missing::Unsupported), None);
        let words = error().hint("do this; then that").to_string();
        assert_eq!(hint(&words, Missing::Unsupported), Some("do this; then that"));
    }

    #[test]
    fn what_mends_the_gpu_is_what_its_error_says() {
        let error = CollectError::new(Missing::Unsupported, "the root is another's").hint("name a library");
        let mut tick = Tick::default();
        let sample = |why: String| Sample {
            at: Nanos(1),
            took: Nanos(1),
            value: Reading::Missing(Missing::Unsupported),
            why,
            hung: None,
        };
        tick.put_missing(Source::Gpu, sample(error.to_string()));
        let of = |tick: &Tick| diagnose(tick).into_iter().find(|diagnosis| diagnosis.source == "gpu").unwrap();
        assert_eq!(of(&tick).mend.as_deref(), Some("name a library"));
        assert_eq!(of(&tick).says, ["nothing: the root is another's: unsupported"], "the advice stands once");
        tick.gpu = None;
        tick.put_missing(Source::Gpu, sample("no words".to_owned()));
        assert!(of(&tick).mend.is_some_and(|mend| mend.contains("install the NVIDIA driver")));
    }

    #[test]
    fn blind_fields_are_counted_over_lists() {
        let value = serde_json::json!({
            "driver": "570",
            "devices": [
                {"util": {"missing": "denied"}, "pcie": {"tx": {"missing": "unsupported"}}},
                {"util": {"missing": "denied"}, "pcie": {"tx": 5}},
            ],
        });
        let field = |field: &str, reason: &str, count| Blind { field: field.into(), reason: reason.into(), count };
        assert_eq!(
            blind_fields(&value),
            [field("devices[].pcie.tx", "unsupported", 1), field("devices[].util", "denied", 2)]
        );
    }
}
