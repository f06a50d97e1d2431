//! The laws, as questions to a saved ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZero;
use std::ops::Range;
use std::thread;

use gpuprod_rules::ledger::{Account, Share};
use gpuprod_rules::{Bucket, Cause, Fault, Judgement, Ledger, State};

use super::oracle::{Expected, Oracle, Size};
use super::schedule::{Rng, Schedule, gpu_of};
use super::whose;

/// Something that keeps accounts: the ledger, or a twin of it with a fault.
pub(crate) trait Book: Clone {
    fn charge(&mut self, judgement: &Judgement);
    fn resume(&mut self);
    fn save(&self) -> String;
    fn load(&mut self, saved: &str) -> Result<(), String>;
    /// The figures.
    fn ledger(&self) -> &Ledger;
}

impl Book for Ledger {
    fn charge(&mut self, judgement: &Judgement) {
        Self::charge(self, judgement);
    }
    fn resume(&mut self) {
        Self::resume(self);
    }
    fn save(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
    fn load(&mut self, saved: &str) -> Result<(), String> {
        *self = serde_json::from_str(saved).map_err(|error| error.to_string())?;
        Ok(())
    }
    fn ledger(&self) -> &Ledger {
        self
    }
}

/// The laws, by their numbers in the design.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Law {
    L1StatesSumToObserved,
    L2BucketsSumToObserved,
    L3TenantsSumToUnit,
    L4PartsSumToGpu,
    L5NothingDecreases,
    L6PartsWithinOne,
    L7OrderIsIrrelevant,
    L8CausedWithinLost,
    L9CuttingIsNothing,
    L10LostStaysOwned,
    L11UnseenIsUnknown,
}

/// A law that was broken, and where.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub(crate) law: Law,
    pub(crate) what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.law, self.what)
    }
}

/// Puts the laws to the ledger over the schedules of these seeds, on all cores. Gives the first break that it
/// finds, if any, and the number of ticks.
pub(crate) fn sweep(seeds: &Range<u64>) -> (Option<String>, u64) {
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    let one = |worker: usize| {
        let mut ticks = 0;
        for seed in seeds.clone().skip(worker).step_by(workers) {
            let schedule = Schedule::new(seed);
            ticks += schedule.beats.len() as u64;
            if let Some(first) = broken(&Ledger::default(), &schedule).first() {
                let troubles = schedule.troubles;
                return (Some(format!("schedule {seed} {troubles:?}: {first}")), ticks);
            }
        }
        (None, ticks)
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|w| scope.spawn(move || one(w))).collect();
        let mut all = (None, 0);
        for worker in running {
            let (bad, ticks) = worker.join().unwrap_or_else(|_| (Some("a panic".to_owned()), 0));
            all = (all.0.or(bad), all.1 + ticks);
        }
        all
    })
}

/// Lets a book live through a schedule, with cuts and restarts, and puts the laws to each of its saved states. All
/// that are broken at the first bad state come back.
pub(crate) fn broken<B: Book>(fresh: &B, schedule: &Schedule) -> Vec<Broken> {
    let mut book = fresh.clone();
    let mut oracle = Oracle::of(schedule);
    let mut before = Ledger::default();
    let mut found = Vec::new();
    for beat in &schedule.beats {
        if beat.cut || beat.restart {
            save_and_load(&mut book, &mut before, &oracle, &mut found);
            if !found.is_empty() {
                return found;
            }
        }
        if beat.restart {
            book.resume();
        }
        oracle.beat(beat);
        book.charge(&beat.judgement);
    }
    let saved = book.save();
    save_and_load(&mut book, &mut before, &oracle, &mut found);
    // One more life tells whether both laws hold; only if not, two more tell which does not.
    if saved != live(fresh, schedule, true) {
        let uncut = live(fresh, schedule, false);
        let law = if saved == uncut { Law::L7OrderIsIrrelevant } else { Law::L9CuttingIsNothing };
        let what = "other bytes at the end".to_owned();
        found.push(Broken { law, what });
    }
    found
}

/// The saved form after a schedule without any cut, in the order given or in another.
fn live<B: Book>(fresh: &B, schedule: &Schedule, shuffled: bool) -> String {
    let mut rng = Rng(!schedule.seed);
    let mut book = fresh.clone();
    for beat in &schedule.beats {
        if beat.restart {
            book.resume();
        }
        if !shuffled {
            book.charge(&beat.judgement);
            continue;
        }
        let mut judgement = beat.judgement.clone();
        rng.shuffle(&mut judgement.units);
        for unit in &mut judgement.units {
            rng.shuffle(&mut unit.split);
        }
        book.charge(&judgement);
    }
    book.save()
}

/// The book goes on as what was saved of it, and that is what the laws are put to.
fn save_and_load<B: Book>(book: &mut B, before: &mut Ledger, oracle: &Oracle, found: &mut Vec<Broken>) {
    match book.load(&book.save()) {
        Ok(()) => inspect(book.ledger(), before, oracle, found),
        Err(what) => found.push(Broken { law: Law::L9CuttingIsNothing, what }),
    }
}

fn inspect(ledger: &Ledger, before: &mut Ledger, oracle: &Oracle, found: &mut Vec<Broken>) {
    let mut check = |law, holds: bool, what: &dyn Fn() -> String| {
        if !holds {
            let what = what();
            found.push(Broken { law, what });
        }
    };
    for (id, old) in &before.accounts {
        let kept = ledger.accounts.get(id);
        let fell = kept.is_none_or(|new| decreased(old, new));
        check(Law::L5NothingDecreases, !fell, &|| format!("{id}: {old:?} became {kept:?}"));
    }
    for (id, expected) in &oracle.units {
        let none = Account::default();
        let account = ledger.accounts.get(id).unwrap_or(&none);
        let owned = !expected.lost || ledger.accounts.contains_key(id);
        check(Law::L10LostStaysOwned, owned, &|| format!("{id} has no account"));
        let mut of_unit = |law, holds, what: &dyn Fn() -> String| check(law, holds, &|| format!("{id}: {}", what()));
        account_laws(account, expected, &mut of_unit);
        match (&expected.whose, &oracle.crowd) {
            (Some(whose), Some(crowd)) => {
                whose::laws(account, whose, expected.roundings, crowd.may_rename(), &mut of_unit);
            }
            _ => whose::nobody(account, &mut of_unit),
        }
    }
    for (gpu, passed) in &oracle.gpus {
        let units = ledger.accounts.iter().filter(|(id, _)| gpu_of(id) == gpu).map(|unit| unit.1);
        gpu_laws(&units.collect::<Vec<_>>(), *passed, &mut |law, holds, what| {
            check(law, holds, &|| format!("{gpu}: {}", what()));
        });
    }
    let strangers = ledger.accounts.len() > oracle.units.len();
    check(Law::L1StatesSumToObserved, !strangers, &|| "accounts of nobody".to_owned());
    before.clone_from(ledger);
}

fn account_laws(account: &Account, expected: &Expected, check: Check<'_>) {
    let sizes = |share: &Share| ((share.slices, share.slices_whole), i128::from(share.observed.0));
    let observed: BTreeMap<Size, i128> = account.shares.iter().map(sizes).collect();
    check(Law::L1StatesSumToObserved, observed == expected.observed, &|| {
        format!("observed {observed:?}, was {:?}", expected.observed)
    });
    let mut states: BTreeMap<State, i128> = BTreeMap::new();
    let mut buckets: BTreeMap<Bucket, i128> = BTreeMap::new();
    for share in &account.shares {
        let states_sum: i128 = share.states.iter().map(|s| i128::from(s.1.0)).sum();
        let buckets_sum: i128 = share.buckets.iter().map(|b| i128::from(b.2)).sum();
        let time = i128::from(share.observed.0);
        check(Law::L1StatesSumToObserved, states_sum == time, &|| format!("states {states_sum}, observed {time}"));
        let all = time * i128::from(share.slices);
        check(Law::L2BucketsSumToObserved, buckets_sum == all, &|| {
            format!("buckets {buckets_sum}, observed x slices {all}")
        });
        for (state, time) in &share.states {
            *states.entry(*state).or_default() += i128::from(time.0);
        }
        for (bucket, _, slice_ns) in &share.buckets {
            *buckets.entry(*bucket).or_default() += i128::from(*slice_ns);
        }
    }
    let names: BTreeSet<&State> = states.keys().chain(expected.states.keys()).collect();
    for state in names {
        let (got, want) = (get(&states, state), get(&expected.states, state));
        let law = match state {
            State::Unknown(_) => Law::L11UnseenIsUnknown,
            State::Faulted(Fault::Lost) => Law::L10LostStaysOwned,
            _ => Law::L1StatesSumToObserved,
        };
        check(law, got == want, &|| format!("{state:?} {got}, was {want}"));
    }
    let names: BTreeSet<&Bucket> = buckets.keys().chain(expected.buckets.keys()).collect();
    for bucket in names {
        let got = get(&buckets, bucket) * 1_000_000;
        let want = get(&expected.buckets, bucket);
        let near = expected.roundings * 1_000_000;
        let (law, holds) = match bucket {
            Bucket::Unknown(_) => (Law::L11UnseenIsUnknown, got == want),
            Bucket::Lost(Cause::Fault) => (Law::L10LostStaysOwned, got == want),
            Bucket::Productive => (Law::L6PartsWithinOne, got <= want + near),
            _ => (Law::L2BucketsSumToObserved, got <= want + near),
        };
        let holds = holds && got >= want - near;
        check(law, holds, &|| format!("{bucket:?} {got}, was {want} (millionths)"));
    }
    check(Law::L10LostStaysOwned, account.retired == expected.retired, &|| {
        format!("retired {}, was {}", account.retired, expected.retired)
    });
}

/// Slices of a GPU that can be cut; one that is not has its time in one piece.
const SLICES: i128 = 7;

/// The units of a GPU, those that are gone too, have its time among them: to the slice-nanosecond in what is kept, to a
/// nanosecond for each figure in what is shown.
fn gpu_laws(units: &[&Account], passed: i128, check: Check<'_>) {
    let shares = || units.iter().flat_map(|account| &account.shares);
    let of_gpu = |share: &Share, slice_ns: i128| slice_ns * SLICES / i128::from(share.slices_whole);
    let observed: i128 =
        shares().map(|share| of_gpu(share, i128::from(share.observed.0) * i128::from(share.slices))).sum();
    let booked = |share: &Share| share.buckets.iter().map(|bucket| i128::from(bucket.2)).sum::<i128>();
    let buckets: i128 = shares().map(|share| of_gpu(share, booked(share))).sum();
    check(Law::L4PartsSumToGpu, observed == passed * SLICES && buckets == observed, &|| {
        format!("observed {observed} and booked {buckets} of {} slice-ns", passed * SLICES)
    });
    // What stands now is one GPU, or nothing is there.
    let now = || units.iter().filter(|account| !account.retired);
    let slices: u32 = now().map(|account| account.slices).sum();
    let whole = now().map(|account| account.slices_whole).max().unwrap_or(0);
    check(Law::L4PartsSumToGpu, slices == whole, &|| format!("{slices} slices of {whole}"));
    let shown: i128 = units.iter().flat_map(|account| account.totals()).map(|total| i128::from(total.time.0)).sum();
    let figures: usize = shares().map(|share| share.buckets.len()).sum();
    let near = i128::try_from(figures).unwrap_or(0);
    check(Law::L4PartsSumToGpu, (passed - near..=passed).contains(&shown), &|| format!("shown {shown} of {passed}"));
}

fn get<K: Ord>(map: &BTreeMap<K, i128>, key: &K) -> i128 {
    map.get(key).copied().unwrap_or(0)
}

/// Takes a law, whether it holds, and what to say if not.
pub(crate) type Check<'a> = &'a mut dyn FnMut(Law, bool, &dyn Fn() -> String);

/// Whether any figure of an account is smaller than it was.
fn decreased(old: &Account, new: &Account) -> bool {
    old.shares.iter().any(|old| {
        let same = |s: &&Share| (s.slices, s.slices_whole) == (old.slices, old.slices_whole);
        let Some(new) = new.shares.iter().find(same) else {
            return true;
        };
        let state = |old: &(State, _)| new.states.iter().any(|s| s.0 == old.0 && s.1 >= old.1);
        let bucket = |old: &(Bucket, _, u64)| {
            let mut buckets = new.buckets.iter();
            buckets.any(|b| (b.0, b.1) == (old.0, old.1) && b.2 >= old.2)
        };
        new.observed < old.observed || !old.states.iter().all(state) || !old.buckets.iter().all(bucket)
    })
}
