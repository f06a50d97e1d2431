//! The same machine with the trouble taken out of it, second by second: what the work would have been.

use crate::scenario::Scenario;
use crate::world::World;

/// Useful work of one GPU in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Done {
    /// What it did; 1 is full speed without noise.
    pub useful: f64,
    /// What it could have done in this second if it had been asked for all it can.
    pub possible: f64,
}

/// A scenario without its trouble.
#[derive(Clone, Debug)]
pub struct Twin(Scenario);

/// The work of a twin, second by second.
#[derive(Debug)]
pub struct Running<'a>(World<'a>);

impl Scenario {
    /// The scenario without what stands after `fault`; the noise of the work is the same.
    #[must_use]
    pub fn twin(&self) -> Twin {
        let mut twin = self.clone();
        twin.events.retain(|event| !event.fault);
        Twin(twin)
    }
}

impl Twin {
    /// Lets it run.
    #[must_use]
    pub fn run(&self) -> Running<'_> {
        Running(World::new(&self.0, 0, crate::ticks::AGE))
    }
}

impl Running<'_> {
    /// One second passes.
    pub fn step(&mut self, second: u64) {
        self.0.step(second);
    }

    /// The work of a GPU in that second.
    #[must_use]
    pub fn done(&self, gpu: usize) -> Done {
        self.0.done(gpu)
    }
}
