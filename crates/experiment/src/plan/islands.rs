//! Placements with islands against the best that is known.

use super::{Settings, Workload, raddle};
use crate::bars::Bars;
use crate::host;
use anyhow::Context as _;
use std::path::Path;

/// Values that are to be reached and proved.
const PROVED: [(&str, &str); 2] =
    [("OperatorGraphs/bert_l-3_inference", "21.9084"), ("OperatorGraphs/bert_l-3_training", "54.2074")];

pub(super) fn run(
    folder: &Path,
    settings: &Settings,
    workloads: &[Workload],
    bars: &mut Bars,
) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    for workload in workloads {
        let path = workload.file(settings);
        let limit = settings.islands_limit_s.to_string();
        let picture = folder.join(format!("{}.svg", workload.name.replace('/', "-")));
        let mut arguments =
            vec!["place".into(), path.to_string_lossy(), "--islands".into(), "--time-limit".into()];
        arguments.push(limit.as_str().into());
        let drawn = PROVED.iter().any(|(name, _)| *name == workload.name);
        if drawn {
            arguments.extend(["--svg".into(), picture.to_string_lossy()]);
        }
        let words: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        let said = raddle(&words)?;
        let number = |of: &str, key: &str| said[of][key].as_f64().with_context(|| format!("{of}.{key}"));
        let (value, lower) = (number("placement", "value_ms")?, number("placement", "lower_ms")?);
        let gap = number("placement", "gap")?;
        let proved = said["placement"]["proved"].as_bool().context("proved or not")?;
        let solver = said["work"]["solver"].as_str().unwrap_or("own search and bounds");
        let wall_s = number("time", "wall_s")?;
        let ratio = value / workload.best_ms;
        match PROVED.iter().find(|(name, _)| *name == workload.name) {
            Some((name, wanted)) => {
                let met = format!("{value:.4}") == *wanted && proved;
                bars.at_least(
                    &format!("{name} with islands is {wanted} and proved"),
                    f64::from(u8::from(met)),
                    1.0,
                    "",
                );
            }
            None if workload.gap.is_some_and(|known| gap < known) && ratio > 1.01 => {
                let known = workload.gap.unwrap_or(1.0);
                bars.at_most(&format!("{} with islands: proved gap", workload.name), gap, known, "");
            }
            None => bars.at_most(&format!("{} with islands / best known", workload.name), ratio, 1.01, "×"),
        }
        bars.note(&format!(
            "{}: {value:.4} ms, at least {lower:.4} ({solver}, {wall_s:.1} s); best known {:.4}",
            workload.name, workload.best_ms
        ));
        lines.push(format!(
            "{},{value:.10},{lower:.10},{gap:.6},{proved},{solver},{wall_s:.2},{}",
            workload.name, workload.best_ms
        ));
    }
    host::csv(
        &folder.join("islands.csv"),
        "workload,value_ms,lower_ms,gap,proved,by,wall_s,best_known_ms",
        lines.into_iter(),
    )
}
