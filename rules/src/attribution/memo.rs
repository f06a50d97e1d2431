//! Comparisons that were made in the block under way. What they compare changes when a block ends, and not before: so
//! a rule that asks again in the next second, or another rule that asks the same, is given the same answer.
//!
//! Nothing is believed to be the same: an answer is given out only to the question to which it was the answer.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::RefCell;

use super::coupling::leads;
use super::did::Did;
use super::switch::Switch;
use crate::UnitId;

/// Comparisons that are kept for one unit, and couplings of all units.
const MOST: usize = 16;
const MOST_COUPLED: usize = 64;

/// A course of blocks.
type Course = Vec<Option<f64>>;

/// What was asked about each unit, and the answers. It is no part of what was learnt: all of it can be had again.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    compared: RefCell<BTreeMap<UnitId, Vec<Compared>>>,
    /// Eight GPUs of one engine have one course: it is coupled once.
    coupled: RefCell<Vec<(Course, Course, Option<f64>)>>,
}

/// The others, the blocks, and what came of it.
type Compared = (Vec<UnitId>, Switch, Option<Did>);

impl Memo {
    /// A block is over.
    pub(crate) fn forget(&mut self) {
        self.compared.get_mut().clear();
        self.coupled.get_mut().clear();
    }

    /// The comparison of a unit with these others over these blocks.
    pub(crate) fn compared(
        &self,
        unit: &UnitId,
        others: &[&UnitId],
        switch: Switch,
        compare: impl FnOnce() -> Option<Did>,
    ) -> Option<Did> {
        let same = |known: &[UnitId]| known.iter().eq(others.iter().copied());
        if let Some(asked) = self.compared.borrow().get(unit)
            && let Some((.., did)) = asked.iter().find(|(known, at, _)| *at == switch && same(known))
        {
            return *did;
        }
        let did = compare();
        let mut units = self.compared.borrow_mut();
        if !units.contains_key(unit) {
            units.insert(unit.clone(), Vec::new());
        }
        if let Some(asked) = units.get_mut(unit).filter(|asked| asked.len() < MOST) {
            asked.push((others.iter().copied().cloned().collect(), switch, did));
        }
        did
    }

    /// How a cause's course goes with a unit's loss ([`leads`]).
    pub(crate) fn coupled(&self, cause: &[Option<f64>], effect: Course) -> Option<f64> {
        let known = |asked: &[(Course, Course, Option<f64>)]| {
            asked.iter().find(|(left, right, _)| left == cause && *right == effect).map(|(.., rho)| *rho)
        };
        if let Some(rho) = known(&self.coupled.borrow()) {
            return rho;
        }
        let rho = leads(cause, &effect);
        let mut asked = self.coupled.borrow_mut();
        if asked.len() < MOST_COUPLED {
            asked.push((cause.to_vec(), effect, rho));
        }
        rho
    }
}

/// A copy has been asked nothing yet.
impl Clone for Memo {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// What was asked makes no difference.
impl PartialEq for Memo {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use gpuprod_snapshot::units::Nanos;

    use super::*;

    #[test]
    fn an_answer_is_given_to_its_own_question_alone() {
        let (mut memo, unit, other) = (Memo::default(), UnitId("GPU-1".into()), UnitId("GPU-2".into()));
        let did = |victim| Some(Did { victim, control: None, significant: true, on: 6, off: 6 });
        let (one, two) = (Switch::since(Nanos(5), Nanos(50), Nanos(5)), Switch::since(Nanos(15), Nanos(50), Nanos(5)));
        let ask = |memo: &Memo, others: &[&UnitId], switch, fresh| memo.compared(&unit, others, switch, || did(fresh));
        assert_eq!(ask(&memo, &[], one, 1.0), did(1.0));
        assert_eq!(ask(&memo, &[], one, 2.0), did(1.0), "the same question");
        assert_eq!(ask(&memo, &[], two, 2.0), did(2.0), "other blocks");
        assert_eq!(ask(&memo, &[&other], one, 3.0), did(3.0), "other units");
        memo.forget();
        assert_eq!(ask(&memo, &[], one, 4.0), did(4.0), "another block");
    }

    #[test]
    fn the_courses_themselves_are_compared() {
        let memo = Memo::default();
        let up: Course = (0..12_u32).map(|n| Some(f64::from(n))).collect();
        let down: Course = up.iter().rev().copied().collect();
        for _ in 0..2 {
            assert_eq!(memo.coupled(&up, up.clone()), Some(1.0));
            assert!(memo.coupled(&up, down.clone()).is_some_and(|rho| rho < 0.0));
        }
    }
}
