//! A million operators in a row: an answer within the time limit, reading and telling included.

use super::raddle;
use crate::bars::Bars;
use anyhow::Context as _;
use std::fmt::Write as _;
use std::time::Instant;

const OPERATORS: usize = 1_000_000;

const LIMIT_S: f64 = 20.0;

pub(super) fn run(bars: &mut Bars) -> anyhow::Result<()> {
    let path = std::env::temp_dir().join(format!("raddle-chain-{}.json", std::process::id()));
    std::fs::write(&path, chain()).with_context(|| format!("cannot write {}", path.display()))?;
    let outcome = measure(&path.to_string_lossy(), bars);
    // A file that stays behind in the temporary folder harms nobody.
    let _ = std::fs::remove_file(&path);
    outcome
}

fn measure(path: &str, bars: &mut Bars) -> anyhow::Result<()> {
    let limit = format!("{LIMIT_S}");
    for (what, more) in [("contiguous", None), ("islands", Some("--islands"))] {
        let mut words = vec!["place", path, "--time-limit", &limit];
        words.extend(more);
        let start = Instant::now();
        let said = raddle(&words)?;
        let wall_s = start.elapsed().as_secs_f64();
        let number = |key: &str| said["placement"][key].as_f64().with_context(|| key.to_owned());
        let (value, lower) = (number("value_ms")?, number("lower_ms")?);
        bars.at_most(
            &format!("a million operators in a row, {what}, --time-limit {LIMIT_S}: the whole process"),
            wall_s,
            LIMIT_S,
            " s",
        );
        bars.note(&format!("a million operators, {what}: {value:.1} ms, at least {lower:.1}"));
    }
    Ok(())
}

/// The chain in the placement literature's JSON: a millisecond, four bytes, half a millisecond to move each output.
fn chain() -> String {
    let mut text = "{\"maxSizePerFPGA\": 1e12, \"maxFPGAs\": 6, \"maxCPUs\": 1, \"nodes\": [".to_owned();
    for id in 0..OPERATORS {
        let comma = if id > 0 { "," } else { "" };
        // Writing into a string does not fail.
        let _ = write!(
            text,
            "{comma}{{\"id\": {id}, \"supportedOnFpga\": 1, \"fpgaLatency\": 1, \"cpuLatency\": 10, \
             \"isBackwardNode\": 0, \"size\": 4}}"
        );
    }
    text.push_str("], \"edges\": [");
    for id in 1..OPERATORS {
        let comma = if id > 1 { "," } else { "" };
        let _ = write!(text, "{comma}{{\"sourceId\": {}, \"destId\": {id}, \"cost\": 0.5}}", id - 1);
    }
    text.push_str("]}");
    text
}
