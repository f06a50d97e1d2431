//! Pressure stall information: of the system (`/proc/pressure`) and of the cgroups in focus.

use gpuprod_snapshot::host::{CgroupPressures, Pressure, Pressures, Psi, Stall};
use gpuprod_snapshot::units::{Nanos, Ppb};

use crate::{CollectError, Collector, Focus, Host, Missing, Part, Reading, Source, cgroup, decimal, tree};

/// The pressure files.
pub struct PressureFiles;

impl Collector for PressureFiles {
    fn source(&self) -> Source {
        Source::Psi
    }

    fn collect(&mut self, host: &Host, focus: &Focus) -> Result<Part, CollectError> {
        let dir = host.proc.join("pressure");
        let system = read(|resource| parse_file(tree::text(&dir.join(resource))));
        let cgroups: Vec<_> = focus
            .cgroups
            .iter()
            .take(cgroup::MAX_CGROUPS)
            .map(|path| CgroupPressures { path: path.clone(), pressures: of_cgroup(host, path) })
            .collect();
        let nowhere = cgroups.iter().all(|cgroup| none(&cgroup.pressures).is_some());
        if let (Some(missing), true) = (none(&system), nowhere) {
            return Err(CollectError::new(missing, format!("read {}", dir.display()))
                .hint("kernels that ship with it switched off need the boot parameter psi=1"));
        }
        Ok(Part::Psi(Psi { system, cgroups }))
    }
}

/// Only the unified hierarchy has pressure files.
fn of_cgroup(host: &Host, path: &str) -> Pressures {
    let dir = cgroup::unified(host, path);
    read(|resource| match &dir {
        Some(dir) => parse_file(tree::text(&dir.join(format!("{resource}.pressure")))),
        None => Reading::Missing(Missing::Unsupported),
    })
}

fn read(one: impl Fn(&str) -> Reading<Pressure>) -> Pressures {
    Pressures { cpu: one("cpu"), io: one("io"), memory: one("memory") }
}

/// The reason, when there is no value at all.
fn none(pressures: &Pressures) -> Option<Missing> {
    let missing = pressures.io.missing()?;
    pressures.cpu.missing()?;
    pressures.memory.missing()?;
    Some(missing)
}

fn parse_file(text: Result<String, CollectError>) -> Reading<Pressure> {
    match text {
        Ok(text) => Reading::from_option(parse(&text), Missing::Malformed),
        Err(error) => Reading::Missing(error.missing),
    }
}

/// The two lines of a pressure file. The CPU file has no `full` line before kernel 5.13.
#[must_use]
pub fn parse(text: &str) -> Option<Pressure> {
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Some(Pressure {
        some: stall(line("some")?)?,
        full: match line("full") {
            Some(line) => Reading::from_option(stall(line), Missing::Malformed),
            None => Reading::Missing(Missing::Unsupported),
        },
    })
}

/// `avg10=0.10 avg60=2.00 avg300=3.85 total=15`: averages in per cent, total in microseconds.
fn stall(line: &str) -> Option<Stall> {
    let value = |key: &str| line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let average = |key| value(key).and_then(decimal::percent).filter(|share| *share <= Ppb::ONE);
    Some(Stall {
        avg10: average("avg10")?,
        avg60: average("avg60")?,
        avg300: average("avg300")?,
        total: Nanos(value("total")?.parse::<u64>().ok()?.checked_mul(1000)?),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::scratch::{Scratch, fixture, shared};

    const IO: &str = "some avg10=1.53 avg60=0.87 avg300=0.73 total=1088168194
full avg10=0.00 avg60=0.10 avg300=100.00 total=1033250000\n";

    fn collect(scratch: &Scratch, cgroups: &[&str]) -> Result<Psi, CollectError> {
        let focus = Focus { cgroups: cgroups.iter().map(|path| (*path).to_owned()).collect(), ..Focus::default() };
        match PressureFiles.collect(&scratch.host(), &focus)? {
            Part::Psi(psi) => Ok(psi),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn percent_and_microseconds_become_shares_and_nanoseconds() {
        let pressure = parse(IO).unwrap();
        assert_eq!(pressure.some.avg10, Ppb(15_300_000));
        assert_eq!(pressure.some.total, Nanos(1_088_168_194_000));
        let full = pressure.full.copied().unwrap();
        assert_eq!((full.avg60, full.avg300), (Ppb(1_000_000), Ppb::ONE));
    }

    #[test]
    fn own_capture() {
        let text = tree::text(&fixture("psi/cpu-before-5.13")).unwrap();
        let pressure = parse(&text).unwrap();
        assert_eq!(pressure.some.avg10, Ppb(42_000_000));
        assert_eq!(pressure.full.missing(), Some(Missing::Unsupported));
    }

    #[test]
    fn the_shared_samples_read_as_expected() {
        let Some(dir) = shared("kernel") else { return };
        let expected: serde_json::Value =
            serde_json::from_str(&tree::text(&dir.join("expected.json")).unwrap()).unwrap();
        for resource in ["cpu", "io", "memory"] {
            let name = format!("pressure/{resource}");
            let read = parse(&tree::text(&dir.join(&name)).unwrap()).unwrap();
            let facts = &expected["files"][&name];
            let same = |stall: &Stall, facts: &serde_json::Value| {
                let share = |key: &str| Ppb::from_fraction(facts[key].as_f64().unwrap() / 100.0);
                assert_eq!(Some(stall.avg10), share("avg10"), "{name}");
                assert_eq!(Some(stall.avg60), share("avg60"), "{name}");
                assert_eq!(Some(stall.avg300), share("avg300"), "{name}");
                assert_eq!(stall.total.0, facts["total"].as_u64().unwrap() * 1000, "{name}");
            };
            same(&read.some, &facts["some"]);
            match facts.get("full") {
                Some(facts) => same(&read.full.copied().unwrap(), facts),
                None => assert_eq!(read.full.missing(), Some(Missing::Unsupported)),
            }
        }
    }

    #[test]
    fn a_kernel_without_psi_says_what_to_do() {
        let error = collect(&Scratch::new(), &["/a"]).unwrap_err();
        assert_eq!(error.missing, Missing::Unsupported);
        assert!(error.to_string().contains("psi=1"), "{error}");
    }

    #[test]
    fn cgroups_are_read_in_the_unified_tree_and_never_outside_of_it() {
        let scratch = Scratch::with(&[
            ("proc/pressure/io", IO),
            ("proc/pressure/cpu", "garbage"),
            ("sys/fs/cgroup/unified/cgroup.controllers", ""),
            ("sys/fs/cgroup/unified/pod/io.pressure", IO),
            ("sys/fs/io.pressure", IO),
        ]);
        let psi = collect(&scratch, &["/gone", "/pod", "/../..", "/pod/../../.."]).unwrap();
        assert_eq!(psi.system.cpu.missing(), Some(Missing::Malformed), "spoils only itself");
        assert!(psi.system.io.get().is_some());
        let got: Vec<_> =
            psi.cgroups.iter().map(|cgroup| (cgroup.path.as_str(), cgroup.pressures.io.get().is_some())).collect();
        let escapes = [("/../..", false), ("/gone", false), ("/pod", true), ("/pod/../../..", false)];
        assert_eq!(got, escapes);
    }

    proptest! {
        #[test]
        fn hostile_text_is_refused_without_a_panic(text in "\\PC{0,200}", avg in "[0-9.+eE-]{0,24}", total in "[0-9]{0,24}") {
            let _ = parse(&text);
            let line = format!("some avg10={avg} avg60=0.00 avg300=0.00 total={total}\n{text}");
            if let Some(pressure) = parse(&line) {
                prop_assert!(pressure.some.avg10 <= Ppb::ONE);
            }
        }
    }
}
