//! PipeDream's digits, and ResNet-101, for which its own tool never ends.

use super::{Settings, cpu_s, spread};
use crate::bars::Bars;
use crate::host;
use plan::formats::{Link, read_pipedream};
use plan::pipeline::{Discipline, Level, Transfers, plan_pipeline, plan_published};
use std::path::Path;

/// Profiles and the seconds a minibatch that the published optimiser prints for four machines of four devices.
const DIGITS: [(&str, &str); 3] = [
    ("image_classification/vgg16", "0.0440084"),
    ("image_classification/resnet50", "0.0286674"),
    ("translation/gnmt", "0.0110810"),
];

const SLOW: &str = "image_classification/resnet101";

pub(super) fn run(folder: &Path, settings: &Settings, bars: &mut Bars) -> anyhow::Result<()> {
    let levels =
        [Level { machines: 4, bytes_per_second: 12e9 }, Level { machines: 4, bytes_per_second: 1.25e9 }];
    let read = |name: &str| -> anyhow::Result<plan::OperatorGraph> {
        let path = settings.data.join(format!("pipedream/profiles/{name}.graph.txt"));
        Ok(read_pipedream(&std::fs::read_to_string(path)?, Link { bytes_per_second: 12e9 })?)
    };
    let mut lines = Vec::new();
    let mut equal = 0u32;
    for (name, digits) in DIGITS {
        let graph = read(name)?;
        let published = plan_published(&graph, &levels, Transfers::Ignored)?;
        let (_, report) = plan_pipeline(&graph, &levels, None, Discipline::Stashing, &|| false)?;
        let found = format!("{:.7}", published.seconds);
        equal += u32::from(found == digits);
        lines.push(format!("{name},{found},{digits},{:.7},{}", report.seconds, report.proved));
    }
    bars.at_least("profiles with the published optimiser's digits", f64::from(equal), 3.0, "");
    let graph = read(SLOW)?;
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..settings.repeats {
        let start = cpu_s()?;
        let published = plan_published(&graph, &levels, Transfers::Ignored)?;
        let middle = cpu_s()?;
        let (_, report) = plan_pipeline(&graph, &levels, None, Discipline::Stashing, &|| false)?;
        times[1].push(cpu_s()? - middle);
        times[0].push(middle - start);
        if times[0].len() == 1 {
            lines.push(format!("{SLOW},{:.7},,{:.7},{}", published.seconds, report.seconds, report.proved));
        }
    }
    for (what, times) in ["the published formulas", "the default optimiser"].iter().zip(times) {
        let (median, least, most) = spread(times);
        bars.at_most(&format!("ResNet-101 on 4 × 4 by {what}, CPU"), median, 1.0, " s");
        bars.note(&format!("ResNet-101 by {what}: {median:.3} s ({least:.3} … {most:.3})"));
    }
    host::csv(
        &folder.join("pipelines.csv"),
        "profile,published_s,published_tool_s,default_s,default_proved",
        lines.into_iter(),
    )
}
