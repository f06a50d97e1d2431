//! A training job's page: one counter of finished steps, under our name or one that the operator gives.

use gpuprod_snapshot::engine::{Engine, EngineKind};
use gpuprod_snapshot::units::from_f64;
use gpuprod_snapshot::{Missing, Reading};

use super::exposition::Sample;
use super::tally::Tally;

/// What a job calls its counter when nobody says otherwise.
const NAME: &str = "gpuprod_steps_total";

/// What a page says of steps.
#[derive(Default)]
pub(super) struct Steps {
    name: Option<String>,
    declared: bool,
    value: Tally,
}

/// The name of a counter of steps: what stands behind `#` in a page's URL.
///
/// # Errors
/// Says what it should be.
pub fn name(fragment: &str) -> Result<String, &'static str> {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    let sound = fragment.starts_with(first) && fragment.chars().all(|c| first(c) || c.is_ascii_digit());
    if sound && fragment.len() <= 200 {
        Ok(fragment.to_owned())
    } else {
        Err("what stands behind # is no name of a counter of steps (letters, digits, _ and :)")
    }
}

impl Steps {
    /// A name makes the page a training job's, whatever stands on it.
    pub(super) fn new(name: Option<&str>) -> Self {
        Self { name: name.map(str::to_owned), ..Self::default() }
    }

    fn wanted(&self) -> &str {
        self.name.as_deref().unwrap_or(NAME)
    }

    /// Takes a sample in, if it is the counter.
    pub(super) fn add(&mut self, sample: &Sample<'_>) -> bool {
        let ours = sample.name == self.wanted();
        if ours {
            self.value.add(sample);
        }
        ours
    }

    /// OpenMetrics declares a counter without its `_total`.
    pub(super) fn declare(&mut self, family: &str) {
        let wanted = self.wanted();
        self.declared |= family == wanted || Some(family) == wanted.strip_suffix("_total");
    }

    /// What it makes of an engine of which nothing else is known.
    pub(super) fn write(&self, engine: &mut Engine) {
        let counts = self.value.met() || self.declared;
        if self.name.is_none() && (engine.kind.get().is_some() || !counts) {
            return;
        }
        engine.kind = Reading::Value(EngineKind::Trainer);
        // Every rank counts the same steps: the largest counts.
        engine.steps = match self.value.max() {
            Ok(steps) => Reading::from_option(from_f64(steps.floor()), Missing::Malformed),
            Err(missing) if self.value.met() => Reading::Missing(missing),
            Err(_) => Reading::Missing(if self.declared { Missing::NotYet } else { Missing::Unsupported }),
        };
        if engine.steps.get().is_some() {
            engine.names.push(format!("steps={}", self.wanted()));
        } else if !counts {
            engine.why = format!("no series {} on the page", self.wanted());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::{read, read_as};
    use super::*;

    // What prometheus_client 0.21 writes for `Counter("gpuprod_steps", "Finished steps")`, with a label.
    const PAGE: &str = "# HELP python_info Python platform information\n# TYPE python_info gauge\n\
        python_info{implementation=\"CPython\",major=\"3\"} 1.0\n\
        # HELP gpuprod_steps_total Finished steps\n# TYPE gpuprod_steps_total counter\n\
        gpuprod_steps_total{model=\"llama\"} 1234.0\n\
        # HELP gpuprod_steps_created Finished steps\n# TYPE gpuprod_steps_created gauge\n\
        gpuprod_steps_created{model=\"llama\"} 1.7e+09\n";

    #[test]
    fn a_trainer_is_known_by_its_counter() {
        let page = read(PAGE).unwrap();
        assert!(page.trains());
        assert_eq!(page.steps, Reading::Value(1234));
        assert_eq!(page.model, Reading::Value("llama".to_owned()));
        assert_eq!(page.names, ["steps=gpuprod_steps_total"]);
        assert_eq!(page.generation_tokens, Reading::Missing(Missing::Unsupported));
    }

    #[test]
    fn an_engine_stays_one_and_a_stranger_is_none() {
        let engine = format!("vllm:num_requests_running 3\n{PAGE}");
        let page = read(&engine).unwrap();
        assert_eq!((page.kind, page.steps.is_not_yet()), (Reading::Value(EngineKind::Vllm), true));
        let page = read("process_cpu_seconds_total 3\n").unwrap();
        assert_eq!((page.kind.get(), page.steps.is_not_yet()), (None, true));
        assert!(page.names.is_empty());
    }

    #[test]
    fn a_name_of_ones_own() {
        let text =
            "trainer:global_step{rank=\"0\"} 7\ntrainer:global_step{rank=\"1\"} 8\nvllm:num_requests_running 3\n";
        let page = read_as(text, Some("trainer:global_step")).unwrap();
        assert!(page.trains(), "the operator's word stands above what is found");
        assert_eq!(page.steps, Reading::Value(8), "ranks count the same steps");
        let page = read_as("up 1\n", Some("trainer:global_step")).unwrap();
        assert!(page.trains());
        assert_eq!(page.steps, Reading::Missing(Missing::Unsupported));
        assert_eq!(page.why, "no series trainer:global_step on the page");
        assert!(name("trainer:global_step").is_ok());
        for bad in ["", "9lives", "a b", "p@host", "a{b}", &"a".repeat(300)] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_no_count_is_no_count() {
        for (value, missing) in
            [("NaN", Missing::Malformed), ("+Inf", Missing::Malformed), ("-1", Missing::Unsupported)]
        {
            let page = read(&format!("gpuprod_steps_total {value}\n")).unwrap();
            assert!(page.trains());
            assert_eq!(page.steps, Reading::Missing(missing), "{value}");
        }
        assert_eq!(read("gpuprod_steps_total 1e300\n").unwrap().steps, Reading::Missing(Missing::Malformed));
        assert_eq!(read("gpuprod_steps_total 7.9\n").unwrap().steps, Reading::Value(7));
        // Declared, and no step is done.
        let page = read("# TYPE gpuprod_steps counter\n").unwrap();
        assert_eq!((page.trains(), page.steps), (true, Reading::Missing(Missing::NotYet)));
    }
}
