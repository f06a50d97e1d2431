//! CPU time and memory of the node: the first line of `stat`, and two lines of `meminfo`.

use gpuprod_snapshot::host::Cpu;
use gpuprod_snapshot::units::{Bytes, Nanos};

use crate::{CollectError, Collector, Focus, Host, Missing, Part, Reading, Source, tree};

/// The kernel counts in hundredths of a second on every architecture that we run on (USER_HZ).
const TICK_NANOS: u64 = 10_000_000;
/// No machine has more; the rest of a hostile file is not counted.
const MOST_CPUS: usize = 65_536;

/// Reads `/proc/stat` and `/proc/meminfo`.
pub struct Times;

impl Collector for Times {
    fn source(&self) -> Source {
        Source::Cpu
    }

    fn collect(&mut self, host: &Host, _focus: &Focus) -> Result<Part, CollectError> {
        let mut cpu = parse(&tree::text(&host.proc.join("stat"))?);
        match tree::text(&host.proc.join("meminfo")) {
            Ok(text) => (cpu.mem_total, cpu.mem_available) = (memory(&text, "MemTotal"), memory(&text, "MemAvailable")),
            Err(error) => {
                (cpu.mem_total, cpu.mem_available) = (Reading::Missing(error.missing), Reading::Missing(error.missing));
            }
        }
        Ok(Part::Cpu(cpu))
    }
}

/// `cpu  user nice system idle iowait irq softirq steal guest guest_nice`, summed over all CPUs; guests are in user
/// time already. Columns that an old kernel does not print are `Unsupported`.
#[must_use]
pub fn parse(text: &str) -> Cpu {
    let online = text.lines().take(MOST_CPUS).filter(|line| is_one_cpu(line)).count();
    let columns: Option<Vec<u64>> = text
        .lines()
        .find_map(|line| line.strip_prefix("cpu "))
        .and_then(|line| line.split_whitespace().take(10).map(|word| word.parse().ok()).collect());
    let Some(columns) = columns.filter(|columns| columns.len() >= 4) else {
        let bad = Reading::Missing(Missing::Malformed);
        return Cpu { online: count(online), busy: bad, interrupts: bad, iowait: bad, steal: bad, ..Cpu::default() };
    };
    let sum = |places: &[usize]| {
        let all: Option<u64> =
            places.iter().try_fold(0_u64, |all, place| all.checked_add(columns.get(*place).copied().unwrap_or(0)));
        Reading::from_option(all.and_then(|ticks| ticks.checked_mul(TICK_NANOS)).map(Nanos), Missing::Malformed)
    };
    let column = |places: &[usize]| match places.last().and_then(|last| columns.get(*last)) {
        Some(_) => sum(places),
        None => Reading::Missing(Missing::Unsupported),
    };
    Cpu {
        online: count(online),
        busy: sum(&[0, 1, 2, 5, 6]),
        interrupts: column(&[5, 6]),
        iowait: column(&[4]),
        steal: column(&[7]),
        ..Cpu::default()
    }
}

fn is_one_cpu(line: &str) -> bool {
    line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

fn count(online: usize) -> Reading<u32> {
    Reading::from_option(u32::try_from(online).ok().filter(|online| *online > 0), Missing::Malformed)
}

/// `MemAvailable:  12345 kB`; kernels before 3.14 have no such line.
fn memory(text: &str, key: &str) -> Reading<Bytes> {
    let Some(value) = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')) else {
        return Reading::Missing(Missing::Unsupported);
    };
    let mut words = value.split_whitespace();
    let kib: Option<u64> = words.next().and_then(|word| word.parse().ok()).filter(|_| words.next() == Some("kB"));
    Reading::from_option(kib.and_then(|kib| kib.checked_mul(1024)).map(Bytes), Missing::Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::scratch::{Scratch, shared};

    fn collect(scratch: &Scratch) -> Result<Cpu, CollectError> {
        match Times.collect(&scratch.host(), &Focus::default())? {
            Part::Cpu(cpu) => Ok(cpu),
            other => panic!("{other:?}"),
        }
    }

    /// A guest of a busy hypervisor: eight columns that count, two that are in the first already.
    const STAT: &str = "cpu  2519022 149413 287025 2205232 11974 7 15284 7354 99 1
cpu0 1261612 76277 142536 1101320 5554 0 6717 3478 0 0
cpu1 1257410 73136 144488 1103912 6419 0 8567 3875 0 0
intr 73777505 41 9
cpufreq 1
";

    #[test]
    fn hundredths_become_nanoseconds_and_guests_are_not_counted_twice() {
        let cpu = parse(STAT);
        assert_eq!(cpu.online.copied(), Some(2));
        assert_eq!(cpu.busy.copied(), Some(Nanos((2_519_022 + 149_413 + 287_025 + 7 + 15_284) * 10_000_000)));
        assert_eq!(cpu.interrupts.copied(), Some(Nanos((7 + 15_284) * 10_000_000)));
        assert_eq!(cpu.iowait.copied(), Some(Nanos(11_974 * 10_000_000)));
        assert_eq!(cpu.steal.copied(), Some(Nanos(7354 * 10_000_000)));
    }

    #[test]
    fn the_shared_samples_read_as_expected() {
        let Some(dir) = shared("kernel") else { return };
        let facts: serde_json::Value = serde_json::from_str(&tree::text(&dir.join("expected.json")).unwrap()).unwrap();
        let (facts, memory_facts) = (&facts["files"]["stat"], &facts["files"]["meminfo"]);
        let cpu = parse(&tree::text(&dir.join("stat")).unwrap());
        let ticks = |key: &str| facts[key].as_u64().unwrap();
        assert_eq!(cpu.online.copied().map(u64::from), facts["cpus"].as_u64());
        let busy = ticks("user") + ticks("nice") + ticks("system") + ticks("irq") + ticks("softirq");
        assert_eq!(cpu.busy.copied(), Some(Nanos(busy * 10_000_000)));
        assert_eq!(cpu.interrupts.copied(), Some(Nanos((ticks("irq") + ticks("softirq")) * 10_000_000)));
        assert_eq!(cpu.steal.copied(), Some(Nanos(ticks("steal") * 10_000_000)));
        let meminfo = tree::text(&dir.join("meminfo")).unwrap();
        assert_eq!(memory(&meminfo, "MemTotal").copied().map(|b| b.0 / 1024), memory_facts["MemTotal"].as_u64());
        assert_eq!(memory(&meminfo, "MemFree").copied().map(|b| b.0 / 1024), memory_facts["MemFree"].as_u64());
    }

    #[test]
    fn what_is_not_there_is_not_zero() {
        let scratch = Scratch::with(&[("proc/stat", "cpu  1 2 3 4\ncpu0 1 2 3 4\n")]);
        let cpu = collect(&scratch).unwrap();
        assert_eq!(cpu.busy.copied(), Some(Nanos(60_000_000)));
        assert_eq!(cpu.steal.missing(), Some(Missing::Unsupported));
        assert_eq!(cpu.mem_total.missing(), Some(Missing::Unsupported));
        scratch.file("proc/meminfo", "MemTotal: 12 pages\nMemAvailable:       512 kB\n");
        let cpu = collect(&scratch).unwrap();
        assert_eq!(
            (cpu.mem_total.missing(), cpu.mem_available.copied()),
            (Some(Missing::Malformed), Some(Bytes(524_288)))
        );
        scratch.file("proc/stat", "cpu  1 2 x 4\n");
        let cpu = collect(&scratch).unwrap();
        assert_eq!((cpu.busy.missing(), cpu.online.missing()), (Some(Missing::Malformed), Some(Missing::Malformed)));
        assert_eq!(collect(&Scratch::new()).unwrap_err().missing, Missing::Unsupported);
    }

    proptest! {
        #[test]
        fn hostile_text_does_not_panic(text in "\\PC{0,200}", columns in "[0-9 ]{0,200}") {
            let _ = parse(&text);
            let _ = parse(&format!("cpu {columns}\n{text}"));
            let _ = memory(&text, "MemTotal");
        }
    }
}
