use super::*;

const WELL: Lesson = Lesson { workload: Some(1), well: true, aside: false };

/// A job that is asked every second.
struct Job {
    signals: StepSignals,
    second: u64,
    done: f64,
    booked: f64,
}

impl Job {
    fn new() -> Self {
        Self { signals: StepSignals::default(), second: 0, done: 0.0, booked: 0.0 }
    }

    fn run(&mut self, seconds: u64, step: f64, lesson: Lesson) {
        let policy = Policy::default();
        for _ in 0..seconds {
            self.second += 1;
            self.done += 1.0 / step;
            let now = Nanos::from_secs(self.second);
            let steps = gpuprod_snapshot::units::from_f64((self.done + 1e-9).floor()).unwrap_or(0);
            let page = Engine { at: now, steps: steps.into(), ..Engine::default() };
            if self.second.is_multiple_of(5) {
                self.signals.close(Nanos::from_secs(self.second - 5), lesson, &policy);
            }
            self.signals.read(&page, lesson, &policy);
            self.signals.book(now, lesson, &policy);
            self.booked += self.signals.exact().unwrap_or(0.0);
        }
    }

    fn booked(&mut self, seconds: u64, step: f64, lesson: Lesson) -> f64 {
        let before = self.booked;
        self.run(seconds, step, lesson);
        self.booked - before
    }

    fn w(&self) -> Option<f64> {
        self.signals.weight(Nanos::from_secs(self.second), &Policy::default())
    }
}

#[test]
fn steady_steps_are_all_productive_however_long_they_take() {
    for step in [0.13, 1.0, 3.7, 12.0, 60.0] {
        let mut job = Job::new();
        job.run(1200, step, WELL);
        assert_eq!(job.w(), Some(1.0), "{step} s");
        let booked = job.booked(600, step, WELL);
        assert!(booked > 594.0, "{step} s: {booked}");
    }
}

#[test]
fn half_of_the_pace_is_half_and_nothing_is_booked_twice() {
    for step in [0.13, 1.0, 3.7, 12.0, 60.0] {
        let mut job = Job::new();
        job.run(1200, step, WELL);
        let slow = Lesson { well: false, ..WELL };
        let booked = job.booked(1200, 2.0 * step, slow);
        assert!((booked - 600.0).abs() < 0.6 * step + 8.0, "{step} s: {booked}");
        assert!(job.w().is_some_and(|w| (w - 0.5).abs() < 0.07), "{step} s: {:?}", job.w());
        let deviation = job.signals.deviation(&Policy::default()).unwrap();
        assert!(deviation.alarm, "{step} s: {deviation:?}");
    }
}

#[test]
fn a_stop_shows_after_a_normal_step_and_is_over_with_the_first() {
    for step in [1.0, 12.0, 60.0] {
        let mut job = Job::new();
        job.run(1200, step, WELL);
        let stop = Lesson { well: false, ..WELL };
        let booked = job.booked(600, 1e9, stop);
        assert!(booked <= step + 3.5, "{step} s: {booked}");
        assert_eq!(job.w(), Some(0.0));
        assert!(job.signals.pause(Nanos::from_secs(job.second), &Policy::default()).is_some());
        job.run(gpuprod_snapshot::units::from_f64(2.0 * step).unwrap() + 2, step, stop);
        assert_eq!(job.w(), Some(1.0), "{step} s");
    }
}

#[test]
fn no_second_between_two_steps_is_a_loss() {
    let mut job = Job::new();
    job.run(1200, 60.0, WELL);
    for _ in 0..180 {
        job.run(1, 60.0, WELL);
        assert_eq!(job.w(), Some(1.0));
        assert!(job.signals.exact().is_some_and(|w| w > 0.99), "{:?}", job.signals.exact());
    }
}

#[test]
fn a_checkpoint_in_the_middle_of_a_step_makes_it_no_slower() {
    let mut job = Job::new();
    job.run(1200 + 30, 60.0, WELL);
    let aside = job.booked(40, 1e9, Lesson { aside: true, ..WELL });
    assert!(aside < 0.01, "{aside}");
    let booked = job.booked(330, 60.0, WELL);
    assert!(booked > 329.0, "{booked}");
    assert_eq!(job.w(), Some(1.0));
}

#[test]
fn one_pause_makes_rare_steps_no_slower_and_two_slow_ones_are_slow() {
    let mut job = Job::new();
    job.run(1200, 20.0, WELL);
    for second in 0..20 + 30 + 60 {
        // Thirty seconds of something that nobody knows.
        job.run(1, if (20..50).contains(&second) { 1e9 } else { 20.0 }, WELL);
        let late = job.signals.is_late(Nanos::from_secs(job.second), &Policy::default());
        assert!(late || job.w().is_some_and(|w| w > 0.75), "second {second}: {:?}", job.w());
    }
    assert_eq!(job.w(), Some(1.0));
    job.run(85, 40.0, WELL);
    assert!(job.w().is_some_and(|w| w < 0.55), "{:?}", job.w());
    assert!(!job.signals.is_late(Nanos::from_secs(job.second), &Policy::default()));
}

#[test]
fn another_job_on_the_port_begins_anew_and_a_restart_does_not() {
    let mut job = Job::new();
    job.run(600, 1.0, WELL);
    job.done = 0.0;
    job.run(1, 1.0, WELL);
    assert_eq!(job.w(), None, "it began anew");
    job.run(3, 1.0, WELL);
    assert_eq!(job.w(), Some(1.0), "and goes as before");
    job.run(2, 1.0, Lesson { workload: Some(2), ..WELL });
    assert_eq!(job.signals.step(&Policy::default()), None);
}

#[test]
fn no_page_no_word() {
    let mut job = Job::new();
    job.run(600, 1.0, WELL);
    let now = Nanos::from_secs(job.second + 11);
    job.signals.book(now, WELL, &Policy::default());
    assert_eq!((job.signals.exact(), job.signals.weight(now, &Policy::default())), (None, None));
    // Nor does a page that steps back in time.
    let before = job.signals.clone();
    job.signals.read(&Engine { at: Nanos(5), steps: 1.into(), ..Engine::default() }, WELL, &Policy::default());
    assert_eq!(job.signals, before);
}
