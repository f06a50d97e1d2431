//! The text form of a scenario: one verb per line.

use gpuprod_snapshot::units::Nanos;

use crate::events;
use crate::knobs::{knob, knob_names, turn};
use crate::scenario::{Array, Disk, Gpus, Knobs, Reads, Scenario, Share, Work};
use crate::template;
use crate::truth::{Blame, Truth};
use crate::vocabulary;
use crate::words::{ParseError, Unit, Words, whole};

/// The largest file that is read.
const MAX_LINES: usize = 10_000;

/// A verb and what it does with the rest of its line.
type Verb = (&'static str, fn(&mut Scenario, &mut Words) -> Result<(), ParseError>);

const VERBS: &[Verb] = &[
    ("scenario", |s, w| w.take("a name").map(|name| s.name = name)),
    ("about", about),
    ("seed", |s, w| w.number("the seed", Unit::Count).map(|seed| s.seed = whole(seed))),
    ("length", |s, w| w.seconds("the length").map(|length| s.length = length)),
    ("noise", noise),
    ("gpu", gpu),
    ("engine", |s, w| work(s, w, true)),
    ("job", |s, w| work(s, w, false)),
    ("disk", disk),
    ("array", array),
    ("share", share),
    ("port", crate::node::port),
    ("slot", crate::pcie::slot),
    ("switch", crate::pcie::switch),
    ("reads", reads),
    ("record", record),
    ("at", |s, w| events::at(s, w, false)),
    ("fault", |s, w| w.need("at").and_then(|()| events::at(s, w, true))),
    ("expect", expect),
    ("blame", |s, w| blame(w).map(|blame| s.blames.push(blame))),
    ("may", |s, w| blame(w).map(|blame| s.may.push(blame))),
    ("effect", |s, w| w.number("the size of the effect", Unit::Fraction).map(|size| s.effect = Some(size))),
    ("silent", silent),
];

impl Scenario {
    /// Reads the text form.
    ///
    /// # Errors
    /// The first line that is not understood, with what would be right.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Self::parse_seeded(text, None)
    }

    /// Reads the text form with another seed than its own: for what is drawn, and for the noise.
    ///
    /// # Errors
    /// As for [`Scenario::parse`].
    pub fn parse_seeded(text: &str, seed: Option<u64>) -> Result<Self, ParseError> {
        let own = text.lines().find_map(|line| line.trim_start().strip_prefix("seed ")?.trim().parse().ok());
        let (text, drawn) = template::expand(text, seed.or(own).unwrap_or(1))?;
        let mut scenario = Self { seed: 1, noise: (0.03, 0.6), drawn, ..Self::default() };
        for (index, text) in text.lines().enumerate().take(MAX_LINES) {
            let mut words = Words::of(index + 1, text)?;
            if words.is_empty() {
                continue;
            }
            let verb = words.take("a verb")?;
            let Some((_, run)) = VERBS.iter().find(|(name, _)| *name == verb) else {
                let known: Vec<&str> = VERBS.iter().map(|(name, _)| *name).collect();
                return Err(words.error(format!("`{verb}` is no verb; there are {}", known.join(", "))));
            };
            run(&mut scenario, &mut words)?;
            words.end()?;
        }
        let lacks = |message: &str| Err(ParseError { line: 0, message: message.into() });
        if scenario.name.is_empty() {
            return lacks("there is no `scenario NAME` line");
        }
        if scenario.length == 0 || scenario.length > 7 * 86_400 {
            return lacks("there is no `length` line of up to 7d");
        }
        scenario.seed = seed.unwrap_or(scenario.seed);
        for event in &mut scenario.events {
            event.until = event.until.min(scenario.length);
        }
        Ok(scenario)
    }

    /// Looks up a workload.
    #[must_use]
    pub fn work(&self, name: &str) -> Option<&Work> {
        self.works.iter().find(|work| work.name == name)
    }

    /// Lets an engine's page be elsewhere: a test knows its port only when it listens.
    pub fn set_port(&mut self, name: &str, port: u16) {
        for work in self.works.iter_mut().filter(|work| work.name == name) {
            work.port = Some(port);
        }
    }

    pub(crate) fn need_work(&self, words: &mut Words) -> Result<String, ParseError> {
        let name = words.take("the name of an engine or job")?;
        match self.work(&name) {
            Some(_) => Ok(name),
            None => Err(words.error(format!("there is no engine or job `{name}` above this line"))),
        }
    }

    pub(crate) fn need_device(&self, words: &mut Words) -> Result<String, ParseError> {
        let name = words.take("the name of an array or disk")?;
        let known = self.shares.iter().any(|share| share.name == name)
            || self.arrays.iter().any(|array| array.name == name)
            || self.disks.iter().any(|disk| disk.name == name);
        if known {
            Ok(name)
        } else {
            Err(words.error(format!("there is no array, disk or share `{name}` above this line")))
        }
    }
}

fn about(s: &mut Scenario, words: &mut Words) -> Result<(), ParseError> {
    while !words.is_empty() {
        if !s.about.is_empty() {
            s.about.push(' ');
        }
        s.about += &words.take("a word")?;
    }
    Ok(())
}

fn noise(s: &mut Scenario, words: &mut Words) -> Result<(), ParseError> {
    s.noise.0 = words.number("the deviation", Unit::Fraction)?;
    if words.skip("memory") {
        s.noise.1 = words.number("the memory", Unit::Fraction)?;
    }
    if s.noise.0 <= 0.5 && s.noise.1 < 1.0 { Ok(()) } else { Err(words.error("noise is at most 50%, memory below 1")) }
}

fn gpu(s: &mut Scenario, words: &mut Words) -> Result<(), ParseError> {
    let count = usize::try_from(whole(words.number("the number of GPUs", Unit::Count)?)).unwrap_or(usize::MAX);
    if count > 64 {
        return Err(words.error("more than 64 GPUs"));
    }
    s.gpus = Gpus { count, model: "NVIDIA H100 80GB HBM3".into(), limit: 700.0, gpm: true };
    while !words.is_empty() {
        match words.take("a key")?.as_str() {
            "model" => s.gpus.model = words.take("the model")?,
            "limit" => s.gpus.limit = words.number("the limit", Unit::Watts)?,
            "gpm" => s.gpus.gpm = words.take("on or off")? == "on",
            other => return Err(words.error(format!("`{other}`: a gpu has model, limit, gpm"))),
        }
    }
    Ok(())
}

/// `record GPU OWNER [standby]`: the scheduler's word that somebody has it.
fn record(s: &mut Scenario, words: &mut Words) -> Result<(), ParseError> {
    let gpus = words.gpus(s.gpus.count)?;
    let owner = words.take("the owner")?;
    let standby = words.skip("standby");
    s.records.extend(gpus.into_iter().map(|gpu| (gpu, owner.clone(), standby)));
    Ok(())
}

fn work(s: &mut Scenario, words: &mut Words, engine: bool) -> Result<(), ParseError> {
    let name = words.take("a name")?;
    if s.work(&name).is_some() {
        return Err(words.error(format!("`{name}` exists already")));
    }
    let next = u16::try_from(s.works.len()).unwrap_or(0);
    let mut work = Work {
        port: engine.then_some(8000 + next),
        model: format!("example/{name}"),
        name,
        gpus: Vec::new(),
        cgroup: None,
        listens: None,
        traffic: None,
        knobs: Knobs::new(engine),
    };
    while !words.is_empty() {
        let key = words.take("a key")?;
        match key.as_str() {
            "gpus" | "gpu" => work.gpus = words.gpus(s.gpus.count)?,
            "traffic" if engine => work.traffic = Some(crate::engine_sim::Traffic::read(words)?),
            "model" => work.model = words.take("the model")?,
            "cgroup" => work.cgroup = Some(words.take("a path")?),
            "listens" if !engine => {
                let port = whole(words.number("the port", Unit::Count)?);
                work.listens = Some(u16::try_from(port).map_err(|_| words.error("no such port"))?);
            }
            "port" => {
                let port = whole(words.number("the port", Unit::Count)?);
                work.port = Some(u16::try_from(port).map_err(|_| words.error("no such port"))?);
            }
            name => match knob(name, words)? {
                Some(value) => turn(&mut work.knobs, name, value),
                None => {
                    return Err(words.error(format!(
                        "`{key}`: there are gpus, cgroup, model, port, traffic, listens, {}",
                        knob_names()
                    )));
                }
            },
        }
    }
    // Whoever counts steps shows them on a page.
    if !engine && work.knobs.step > 0.0 {
        work.port = work.port.or(Some(8000 + next));
    } else if !engine && work.port.is_some() {
        return Err(words.error("a job without `step` has no page: `listens PORT` is a port without one"));
    }
    s.works.push(work);
    Ok(())
}

fn disk(s: &mut Scenario, words: &mut Words) -> Result<(), ParseError> {
    let name = words.take("a kernel name")?;
    let mount = if words.skip("mount") { Some(words.take("a mount point")?) } else { None };
    add_disk(s, words, &name, mount)
}

fn add_disk(s: &mut Scenario, words: &Words, name: &str, mount: Option<String>) -> Result<(), ParseError> {
    if s.disks.iter().any(|disk| disk.name == name) {
        return Err(words.error(format!("disk `{name}` is named twice")));
    }
    if !is_nvme(name) && !is_sd(name) {
        return Err(words.error(format!("`{name}` is no disk's name (nvme0n1, sda)")));
    }
    s.disks.push(Disk { name: name.into(), mount });
    Ok(())
}

/// `nvme0n1`.
pub(crate) fn is_nvme(name: &str) -> bool {
    name.strip_prefix("nvme").and_then(|rest| rest.strip_suffix("n1")).is_some_and(|n| n.parse::<u8>().is_ok())
}

fn is_sd(name: &str) -> bool {
    name.strip_prefix("sd").is_some_and(|rest| rest.len() == 1 && rest.bytes().all(|b| b.is_ascii_lowercase()))
}

fn array(s: &mut Scenario, words: &mut Words) -> Result<(), ParseError> {
    let name = words.take("a name")?;
    let level = words.take("a level")?;
    if name.strip_prefix("md").is_none_or(|n| n.parse::<u8>().is_err()) {
        return Err(words.error(format!("`{name}` is no array's name (md0)")));
    }
    if !["raid0", "raid1", "raid5", "raid6", "raid10"].contains(&level.as_str()) {
        return Err(words.error(format!("`{level}` is no level (raid0, raid1, raid5, raid6, raid10)")));
    }
    let mut array =
        Array { name, level, members: Vec::new(), spares: Vec::new(), size: 1_919_850_381_312.0, mount: None };
    let keys = ["members", "spare", "size", "mount"];
    while !words.is_empty() {
        let key = words.take("a key")?;
        match key.as_str() {
            "members" | "spare" => {
                while words.peek().is_some_and(|word| !keys.contains(&word)) {
                    let disk = words.take("a disk")?;
                    add_disk(s, words, &disk, None)?;
                    if key == "spare" { array.spares.push(disk) } else { array.members.push(disk) }
                }
            }
            "size" => array.size = words.number("the size of a member", Unit::Bytes)?,
            "mount" => array.mount = Some(words.take("a mount point")?),
            _ => return Err(words.error(format!("`{key}`: an array has {}", keys.join(", ")))),
        }
    }
    if array.members.len() < 2 {
        return Err(words.error("an array needs two members or more"));
    }
    // Whole mebibytes, so that every place that prints the size in its own unit agrees.
    array.size = ((array.size / 1_048_576.0).floor() * 1_048_576.0).max(1_048_576.0);
    s.arrays.push(array);
    Ok(())
}

fn share(s: &mut Scenario, words: &mut Words) -> Result<(), ParseError> {
    let (name, fs) = (words.take("a name")?, words.take("a type (nfs4)")?);
    words.need("mount")?;
    let mount = words.take("a mount point")?;
    s.shares.push(Share { name, fs, mount });
    Ok(())
}

fn reads(s: &mut Scenario, words: &mut Words) -> Result<(), ParseError> {
    let who = s.need_work(words)?;
    let device = s.need_device(words)?;
    let mut reads = Reads { who, device, rate: 900e6, block: 131_072.0 };
    if words.peek().is_some_and(|word| word != "block") {
        reads.rate = words.number("the rate", Unit::BytesPerSecond)?;
    }
    if words.skip("block") {
        reads.block = words.number("the block", Unit::Bytes)?.max(512.0);
    }
    s.reads.push(reads);
    Ok(())
}

fn range(words: &mut Words) -> Result<(Nanos, Nanos), ParseError> {
    let word = words.take("a range of time")?;
    let parts =
        word.split_once("..").and_then(|(from, to)| Some((crate::words::seconds(from)?, crate::words::seconds(to)?)));
    match parts {
        Some((from, to)) if from < to => Ok((Nanos::from_secs(from), Nanos::from_secs(to))),
        _ => Err(words.error(format!("`{word}` is no range of time (for instance 4m..8m)"))),
    }
}

fn expect(s: &mut Scenario, words: &mut Words) -> Result<(), ParseError> {
    let (from, to) = range(words)?;
    if !words.skip("gpus") {
        words.need("gpu")?;
    }
    let gpus = words.gpus(s.gpus.count)?;
    let state = words.take("a state")?;
    let cause = if words.peek().is_some_and(|word| !["w", "every"].contains(&word)) {
        Some(words.take("a cause")?)
    } else {
        None
    };
    if let Some(wrong) = vocabulary::no_state(&state, cause.as_deref()) {
        return Err(words.error(wrong));
    }
    let w = if words.skip("w") { Some(words.number("w", Unit::Fraction)?) } else { None };
    let every = if words.skip("every") { Some(words.seconds("how often")?.max(1)) } else { None };
    let truth = |unit: usize, later: u64| Truth {
        unit,
        from: from.saturating_add(Nanos::from_secs(later)),
        to: to.saturating_add(Nanos::from_secs(later)),
        state: state.clone(),
        cause: cause.clone(),
        w,
    };
    let end = Nanos::from_secs(s.length);
    for later in (0..10_000).map(|round| round * every.unwrap_or(0)) {
        s.expects.extend(gpus.iter().map(|unit| truth(*unit, later)));
        if every.is_none_or(|every| from.saturating_add(Nanos::from_secs(later + every)) >= end) {
            break;
        }
    }
    Ok(())
}

fn blame(words: &mut Words) -> Result<Blame, ParseError> {
    let (from, to) = range(words)?;
    let cause = finding(words)?;
    let object = if words.is_empty() { None } else { Some(words.take("an object")?) };
    Ok(Blame { cause, object, from, to })
}

fn silent(s: &mut Scenario, words: &mut Words) -> Result<(), ParseError> {
    if words.is_empty() {
        s.silent.push("all".into());
    }
    while !words.is_empty() {
        s.silent.push(finding(words)?);
    }
    Ok(())
}

/// A word by which a finding can be called.
fn finding(words: &mut Words) -> Result<String, ParseError> {
    let word = words.take("a cause or rule")?;
    match vocabulary::unknown(&word) {
        Some(wrong) => Err(words.error(wrong)),
        None => Ok(word),
    }
}
