//! Whose a workload is, and what it is for: as the site has declared it.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gpuprod_snapshot::tenant::{JobNote, Owner};
use serde::{Deserialize, Serialize};

use crate::Class;

/// What counts as a tenant. One kind per site, so that every figure speaks of the same thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TenantBy {
    /// The first that is known of account, namespace, systemd slice of a user or of a service.
    #[default]
    Auto,
    /// Slurm account, from the job's note.
    Account,
    /// Kubernetes namespace, from the pod's note.
    Namespace,
    /// The innermost systemd slice of the cgroup.
    Slice,
    /// The user who started it, by number.
    User,
    /// Nobody: time is not split by tenant.
    None,
}

/// A line of the table of classes: all that it names must fit. `*` stands for any text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassRule {
    /// Cgroup path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Slurm account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Slurm partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Kubernetes namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The class of what fits.
    pub class: Class,
}

/// How the site names tenants and classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenancy {
    /// What counts as a tenant.
    pub by: TenantBy,
    /// The table of classes: the first line that fits.
    pub classes: Vec<ClassRule>,
}

/// Longest name of a tenant, in characters.
const LONGEST: usize = 128;

/// What is known of a process: where it runs, what that path says, what its job's note says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    pub(crate) cgroup: &'a str,
    pub(crate) owner: Option<&'a Owner>,
    pub(crate) note: Option<&'a JobNote>,
    pub(crate) uid: Option<u32>,
}

impl Tenancy {
    /// Whose it is; none when that cannot be told.
    pub(crate) fn tenant(&self, origin: Origin<'_>) -> Option<String> {
        let account = || origin.note.and_then(|note| note.account.clone());
        let namespace = || origin.note.and_then(|note| note.namespace.clone());
        let user = || origin.owner.and_then(|owner| owner.user_uid).or(origin.uid).map(|uid| format!("uid-{uid}"));
        let name = match self.by {
            TenantBy::None => None,
            TenantBy::Account => account(),
            TenantBy::Namespace => namespace(),
            TenantBy::Slice => slice(origin.cgroup),
            TenantBy::User => user(),
            TenantBy::Auto => account().or_else(namespace).or_else(|| {
                // What a scheduler runs is not its daemon's: without a note nobody knows whose it is.
                let foreign = origin.owner.is_some_and(|owner| owner.slurm_job.is_some() || owner.pod_uid.is_some());
                let own = || origin.owner.and_then(|owner| owner.user_uid).map(|uid| format!("uid-{uid}"));
                let unit = || origin.owner?.unit.as_ref().map(|unit| plain_unit(unit).to_string());
                if foreign { None } else { own().or_else(unit) }
            }),
        };
        let ascii = |name: &String| name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        let plain = |name: &String| name.len() <= LONGEST && (ascii(name) || !name.chars().any(char::is_control));
        let clean = |name: String| name.chars().filter(|c| !c.is_control()).take(LONGEST).collect::<String>();
        name.map(|name| if plain(&name) { name } else { clean(name) }).filter(|name| !name.is_empty())
    }

    /// What it is for, if anybody has declared that: the job's note, then the table.
    pub(crate) fn class(&self, origin: Origin<'_>) -> Option<Class> {
        let noted = origin.note.and_then(|note| note.class.as_deref());
        let noted = noted.and_then(|word| Class::ALL.iter().copied().find(|class| class.as_str() == word));
        noted.or_else(|| self.classes.iter().find(|rule| rule.fits(origin)).map(|rule| rule.class))
    }
}

impl ClassRule {
    fn fits(&self, origin: Origin<'_>) -> bool {
        let note = |pick: fn(&JobNote) -> Option<&String>| origin.note.and_then(pick).map(String::as_str);
        let all = [
            (&self.cgroup, Some(origin.cgroup)),
            (&self.account, note(|note| note.account.as_ref())),
            (&self.partition, note(|note| note.partition.as_ref())),
            (&self.namespace, note(|note| note.namespace.as_ref())),
        ];
        self.names()
            && all.iter().all(|(want, is)| want.as_ref().is_none_or(|want| is.is_some_and(|is| like(want, is))))
    }

    /// Whether it names anything at all: an empty line fits nobody.
    #[must_use]
    pub const fn names(&self) -> bool {
        self.cgroup.is_some() || self.account.is_some() || self.partition.is_some() || self.namespace.is_some()
    }
}

/// A systemd unit without the ending of a service.
fn plain_unit(unit: &str) -> &str {
    unit.strip_suffix(".service").map_or(unit, plain_unit)
}

/// The innermost slice of a path.
fn slice(path: &str) -> Option<String> {
    path.rsplit('/').find(|part| part.ends_with(".slice")).map(ToString::to_string)
}

/// Whether a text fits a pattern in which `*` stands for any text. Takes time proportional to the product of both.
#[must_use]
pub fn like(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where the last star was, and how far the text had come.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match (pattern.get(p), star) {
            (Some(b'*'), _) => {
                star = Some((p, t));
                p += 1;
            }
            (Some(byte), _) if text.get(t) == Some(byte) => {
                p += 1;
                t += 1;
            }
            (_, Some((at, from))) => {
                star = Some((at, from + 1));
                p = at + 1;
                t = from + 1;
            }
            (_, None) => return false,
        }
    }
    pattern.iter().skip(p).all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin<'a>(cgroup: &'a str, owner: &'a Owner, note: Option<&'a JobNote>) -> Origin<'a> {
        Origin { cgroup, owner: Some(owner), note, uid: Some(1000) }
    }

    #[test]
    fn a_star_is_any_text() {
        for (pattern, text, fits) in [
            ("gpu-*", "gpu-a100", true),
            ("*batch*", "low-batch-2", true),
            ("batch", "batch", true),
            ("batch", "batches", false),
            ("*", "", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxcyyb", false),
            ("", "x", false),
        ] {
            assert_eq!(like(pattern, text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn a_tenant_is_the_one_configured_thing() {
        let owner = Owner { slurm_job: Some("7".into()), ..Owner::default() };
        let note = JobNote { account: Some("physics".into()), partition: Some("gpu-low".into()), ..JobNote::default() };
        let of = |by, note| {
            Tenancy { by, ..Tenancy::default() }.tenant(origin("/system.slice/slurmstepd.scope/job_7", &owner, note))
        };
        assert_eq!(of(TenantBy::Account, Some(&note)).as_deref(), Some("physics"));
        assert_eq!(of(TenantBy::Auto, Some(&note)).as_deref(), Some("physics"));
        assert_eq!(of(TenantBy::Slice, Some(&note)).as_deref(), Some("system.slice"));
        assert_eq!(of(TenantBy::User, Some(&note)).as_deref(), Some("uid-1000"));
        assert_eq!(of(TenantBy::None, Some(&note)), None);
        assert_eq!(of(TenantBy::Account, None), None, "nobody knows, and nobody guesses");
        assert_eq!(of(TenantBy::Auto, None), None);
    }

    #[test]
    fn the_first_line_that_fits_decides_and_an_empty_one_fits_nobody() {
        let (owner, note) = (Owner::default(), JobNote { partition: Some("gpu-low".into()), ..JobNote::default() });
        let line = |partition: Option<&str>, class| ClassRule {
            partition: partition.map(Into::into),
            class,
            ..ClassRule::default()
        };
        let tenancy = Tenancy {
            classes: alloc::vec![
                line(None, Class::Dev),
                line(Some("gpu-*"), Class::Batch),
                line(Some("*"), Class::Spot)
            ],
            ..Tenancy::default()
        };
        assert_eq!(tenancy.class(origin("/x", &owner, Some(&note))), Some(Class::Batch));
        assert_eq!(tenancy.class(origin("/x", &owner, None)), None);
        let word = JobNote { class: Some("serving".into()), ..note.clone() };
        assert_eq!(tenancy.class(origin("/x", &owner, Some(&word))), Some(Class::Serving), "the job's own note first");
        let wrong = JobNote { class: Some("vip".into()), ..note };
        assert_eq!(tenancy.class(origin("/x", &owner, Some(&wrong))), Some(Class::Batch));
    }
}
