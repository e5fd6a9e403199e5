//! How many events a second the simulator takes, on one core: four models at 70 % load, classes and deadlines mixed.

use super::Settings;
use crate::bars::Bars;
use crate::host;
use sched::node::policy::Choice;
use sim::{Scenario, Simulation};
use std::path::Path;
use std::time::Instant;

const LIMIT: f64 = 1e6;

/// Repeats of each policy; the median counts.
const REPEATS: usize = 5;

pub(super) fn run(folder: &Path, settings: &Settings, bars: &mut Bars) -> anyhow::Result<()> {
    let mut scenario = Scenario::read(&folder.join("simulator.toml"))?;
    scenario.duration_ms = settings.simulated_s * 1_000;
    let mut rows = Vec::new();
    for name in Choice::NAMES {
        let choice = Choice::named(name).expect("the names are the policies");
        let mut rates = Vec::new();
        for repeat in 0..REPEATS {
            scenario.seed = repeat as u64;
            let begin = Instant::now();
            let outcome = Simulation::new(&scenario, &choice).run(|_, _, _| Ok(()))?;
            let (events, seconds) = (outcome.tally.events(), begin.elapsed().as_secs_f64());
            rates.push(events as f64 / seconds);
            rows.push(format!("{name},{repeat},{events},{seconds:.6},{}", outcome.tally.turns()));
        }
        rates.sort_by(f64::total_cmp);
        let median = rates[REPEATS / 2];
        bars.at_least(&format!("simulator under {name}, median"), median, LIMIT, " events/s");
        bars.note(&format!("simulator under {name}: {:.0} … {:.0} events/s", rates[0], rates[REPEATS - 1]));
    }
    host::csv(&folder.join("simulator.csv"), "policy,seed,events,seconds,turns", rows.into_iter())
}
