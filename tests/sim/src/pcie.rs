//! The way between GPUs and the host: slots, switches that devices share, links that train down, and the socket on which a
//! workload runs.

use std::collections::BTreeMap;

use crate::parts::topology::gpu_node;
use crate::scenario::{Harm, Scenario, What, Work};
use crate::words::{ParseError, Unit, Words, float, whole32};

/// Lanes and generation that no slot narrows.
const LANES: u32 = 16;

/// What the board gives its devices, where that is not a slot of 16 lanes and a switch of its own for each GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wiring {
    /// Slots that have less than their cards: GPUs, lanes, generation.
    pub slots: Vec<(Vec<usize>, Option<u32>, Option<u32>)>,
    /// GPUs, and drives, that share one switch.
    pub switches: Vec<(Vec<usize>, Vec<String>)>,
}

/// What happens on the way.
#[derive(Clone, Debug, PartialEq)]
pub enum PcieEvent {
    /// A link has fewer lanes, or a lower generation, or repeats what was damaged.
    Link {
        /// Of these GPUs.
        gpus: Vec<usize>,
        /// Lanes that are left.
        width: Option<u32>,
        /// Generation that is left.
        generation: Option<u32>,
        /// Repeated packets per minute.
        replays: f64,
        /// Whom it slows.
        harm: Harm,
    },
    /// A workload's threads run on the CPUs of this socket.
    Socket {
        /// The workload.
        who: String,
        /// The socket.
        socket: u32,
        /// The share of their time.
        part: f64,
        /// Whom it slows.
        harm: Harm,
    },
    /// A workload copies so much to each of its GPUs, beside what its work needs.
    Transfer {
        /// The workload.
        who: String,
        /// Bytes per second.
        rate: f64,
        /// Whom it slows.
        harm: Harm,
    },
}

impl PcieEvent {
    pub(crate) const fn harm(&self) -> &Harm {
        match self {
            Self::Link { harm, .. } | Self::Socket { harm, .. } | Self::Transfer { harm, .. } => harm,
        }
    }
}

/// A GPU's link at a second: lanes and generation now and at most, those of the card alone, and replays per minute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LinkNow {
    pub(crate) width: u32,
    pub(crate) width_max: u32,
    pub(crate) generation: u32,
    pub(crate) generation_max: u32,
    pub(crate) replays: f64,
}

/// `slot gpu LIST [x8] [gen3]`.
pub(crate) fn slot(s: &mut Scenario, words: &mut Words) -> Result<(), ParseError> {
    words.need("gpu")?;
    let gpus = words.gpus(s.gpus.count)?;
    let (width, generation) = lanes(words)?;
    if width.is_none() && generation.is_none() {
        return Err(words.error("a slot that is as good as its card needs no line (x8, gen3)"));
    }
    s.wiring.slots.push((gpus, width, generation));
    Ok(())
}

/// `switch gpu LIST [with DISK ...]`.
pub(crate) fn switch(s: &mut Scenario, words: &mut Words) -> Result<(), ParseError> {
    words.need("gpu")?;
    let gpus = words.gpus(s.gpus.count)?;
    let mut disks = Vec::new();
    if words.skip("with") {
        while !words.is_empty() {
            let disk = words.take("a drive")?;
            if !s.disks.iter().any(|known| known.name == disk) {
                return Err(words.error(format!("there is no drive `{disk}` above this line")));
            }
            disks.push(disk);
        }
    }
    let twice = s.wiring.switches.iter().any(|(known, _)| known.iter().any(|gpu| gpus.contains(gpu)));
    if twice || gpus.is_empty() {
        return Err(words.error("a GPU sits behind one switch"));
    }
    s.wiring.switches.push((gpus, disks));
    Ok(())
}

/// `x4` and `gen3`, in any order.
fn lanes(words: &mut Words) -> Result<(Option<u32>, Option<u32>), ParseError> {
    let (mut width, mut generation) = (None, None);
    loop {
        let number = |prefix: &str| words.peek().and_then(|word| word.strip_prefix(prefix)?.parse::<u32>().ok());
        match (number("x"), number("gen")) {
            (Some(lanes), _) if [1, 2, 4, 8, 16].contains(&lanes) => width = Some(lanes),
            (_, Some(number)) if (1..=6).contains(&number) => generation = Some(number),
            (None, None) => return Ok((width, generation)),
            _ => return Err(words.error("a link has 1, 2, 4, 8 or 16 lanes (x8) and a generation from 1 to 6 (gen3)")),
        }
        words.take("lanes")?;
    }
}

fn harms(s: &Scenario, words: &mut Words) -> Result<Harm, ParseError> {
    let mut harm = Harm::default();
    while words.skip("slows") {
        let who = s.need_work(words)?;
        words.need("to")?;
        harm.slows.push((who, words.number("the share that is left", Unit::Fraction)?));
    }
    Ok(harm)
}

type Read = Result<(String, What), ParseError>;

/// `link gpu LIST [x4] [gen3] [replays N] [slows WHO to SHARE]`.
pub(crate) fn link(s: &Scenario, words: &mut Words) -> Read {
    words.need("gpu")?;
    let word = words.peek().unwrap_or_default().to_owned();
    let gpus = words.gpus(s.gpus.count)?;
    let (width, generation) = lanes(words)?;
    let replays = if words.skip("replays") { words.number("replays per minute", Unit::Count)? } else { 0.0 };
    if width.is_none() && generation.is_none() && replays <= 0.0 {
        return Err(words.error("what of the link is wrong is missing (x4, gen3, replays 30)"));
    }
    let harm = harms(s, words)?;
    Ok((format!("gpu {word}"), What::Pcie(PcieEvent::Link { gpus, width, generation, replays, harm })))
}

/// `socket WHO N [part SHARE] [slows WHO to SHARE]`.
pub(crate) fn socket(s: &Scenario, words: &mut Words) -> Read {
    let who = s.need_work(words)?;
    let socket = whole32(words.number("the number of a socket", Unit::Count)?);
    if socket > u32::from(s.gpus.count > 1) {
        return Err(words.error("there is no such socket: a node has two, with one GPU one"));
    }
    let part =
        if words.skip("part") { words.number("the share of its CPU time", Unit::Fraction)?.min(1.0) } else { 1.0 };
    let harm = harms(s, words)?;
    Ok((who.clone(), What::Pcie(PcieEvent::Socket { who, socket, part, harm })))
}

/// `transfer WHO 40GB/s [slows WHO to SHARE]`.
pub(crate) fn transfer(s: &Scenario, words: &mut Words) -> Read {
    let who = s.need_work(words)?;
    let rate = words.number("the speed", Unit::BytesPerSecond)?;
    let harm = harms(s, words)?;
    Ok((who.clone(), What::Pcie(PcieEvent::Transfer { who, rate, harm })))
}

impl Scenario {
    /// What is going on on the way, and the share of its full effect that each has reached.
    fn on_the_way(&self, second: u64) -> impl Iterator<Item = (&PcieEvent, f64)> {
        self.growing(second).filter_map(|(what, grown)| match what {
            What::Pcie(event) => Some((event, grown)),
            _ => None,
        })
    }

    /// A GPU's link, whose card has this generation. At rest it saves power.
    pub(crate) fn link(&self, gpu: usize, card: u32, busy: bool, second: u64) -> LinkNow {
        let slots = self.wiring.slots.iter().filter(|(gpus, ..)| gpus.contains(&gpu));
        let (width_max, generation_max) = slots.fold((LANES, card), |(width, generation), (_, lanes, slower)| {
            (width.min(lanes.unwrap_or(LANES)), generation.min(slower.unwrap_or(card)))
        });
        let mut now = LinkNow { width: width_max, width_max, generation: generation_max, generation_max, replays: 0.0 };
        for (event, _) in self.on_the_way(second) {
            if let PcieEvent::Link { gpus, width, generation, replays, .. } = event
                && gpus.contains(&gpu)
            {
                now.width = now.width.min(width.unwrap_or(LANES));
                now.generation = now.generation.min(generation.unwrap_or(card));
                now.replays += replays;
            }
        }
        if !busy {
            now.generation = 1;
        }
        now
    }

    /// Bytes per second that a workload copies to each of its GPUs beside what its work needs: all of it from the start,
    /// whatever it costs others by and by.
    pub(crate) fn transfers(&self, work: &Work, second: u64) -> f64 {
        let of_it = self.on_the_way(second).filter_map(|(event, _)| match event {
            PcieEvent::Transfer { who, rate, .. } if *who == work.name => Some(*rate),
            _ => None,
        });
        of_it.sum()
    }

    /// The sockets on which a workload's threads run, with their shares of its CPU time: those of its GPUs, as far as
    /// nobody moved it.
    pub(crate) fn runs_on(&self, work: &Work, second: u64) -> BTreeMap<u32, f64> {
        let mut own: Vec<u32> = work.gpus.iter().map(|gpu| gpu_node(self.home_of(*gpu), self.gpus.count)).collect();
        own.sort_unstable();
        own.dedup();
        if own.is_empty() {
            own.push(0);
        }
        let mut shares: BTreeMap<u32, f64> = own.iter().map(|socket| (*socket, 1.0 / float(own.len()))).collect();
        for (event, _) in self.on_the_way(second) {
            if let PcieEvent::Socket { who, socket, part, .. } = event
                && *who == work.name
            {
                shares.values_mut().for_each(|share| *share *= 1.0 - part);
                *shares.entry(*socket).or_default() += part;
            }
        }
        shares
    }

    /// The GPU whose root port leads to this one: behind a shared switch, the first of them.
    pub(crate) fn home_of(&self, gpu: usize) -> usize {
        let shared = self.wiring.switches.iter().find(|(gpus, _)| gpus.contains(&gpu));
        shared.and_then(|(gpus, _)| gpus.first().copied()).unwrap_or(gpu)
    }

    /// The switch behind which a GPU or a drive sits, if it shares it: its first GPU, and its own place below it.
    pub(crate) fn switch_of(&self, gpu: Option<usize>, disk: Option<&str>) -> Option<(usize, usize)> {
        self.wiring.switches.iter().find_map(|(gpus, disks)| {
            let place = gpus.iter().position(|own| Some(*own) == gpu);
            let place =
                place.or_else(|| Some(gpus.len() + disks.iter().position(|own| Some(own.as_str()) == disk)?))?;
            Some((*gpus.first()?, place))
        })
    }
}
