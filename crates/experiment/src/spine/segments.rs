//! What cutting costs: the same network whole and in segments, in turn, on one core.

use super::Settings;
use crate::bars::Bars;
use crate::host;
use crate::statistics::{ratio, spread_ms};
use engine::{CpuDevice, Device, Program, Progress, Queue, Run};
use graph::zoo::{self, ZooOptions};
use graph::{Graph, ImportLimits, Model, SegmentOptions, Sizes, segment};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use vocab::Span;

const LIMIT: f64 = 1.05;

pub(super) fn run(folder: &Path, settings: &Settings, bars: &mut Bars) -> anyhow::Result<()> {
    let device = CpuDevice::with_cores(vec![vec![settings.core]])?;
    let rows = std::thread::scope(|scope| {
        // The queue pins the thread that opens it.
        let body = || measure_all(&device, settings, bars);
        scope.spawn(body).join().map_err(|_| anyhow::anyhow!("the measuring thread panicked"))?
    })?;
    host::csv(&folder.join("segments.csv"), "model,segments,pair,whole_ns,cut_ns", rows.into_iter())
}

fn measure_all(device: &CpuDevice, settings: &Settings, bars: &mut Bars) -> anyhow::Result<Vec<String>> {
    let mut queue = device.open(device.partitions()[0].id)?;
    let mut rows = Vec::new();
    for name in &settings.segment_models {
        let file = zoo::build(name, &ZooOptions::default())?;
        let model = Model::from_bytes(name, zoo::encode(&file), &ImportLimits::default())?;
        let graph = model.at(&Sizes::batch(1))?;
        let whole =
            prepare(device, &graph, &SegmentOptions { segments_max: 1, ..SegmentOptions::default() })?;
        let cut = prepare(device, &graph, &SegmentOptions::default())?;
        let (mut whole_spans, mut cut_spans) = (Vec::new(), Vec::new());
        for pair in 0..=settings.segment_pairs {
            // In turn, and each first as often as the other, so that drift and caches favour neither.
            let mut spans = [Span::ZERO; 2];
            for place in if pair % 2 == 0 { [0, 1] } else { [1, 0] } {
                spans[place] = time(device, &mut *queue, [&whole, &cut][place])?;
            }
            // The first pair warms up.
            if pair > 0 {
                whole_spans.push(spans[0]);
                cut_spans.push(spans[1]);
                let (whole_ns, cut_ns) = (spans[0].ns(), spans[1].ns());
                rows.push(format!("{name},{},{pair},{whole_ns},{cut_ns}", cut.segments().len()));
            }
        }
        let what = format!("{name} in {} segments / whole", cut.segments().len());
        let mut ratios: Vec<f64> =
            cut_spans.iter().zip(&whole_spans).map(|(cut, whole)| ratio(*cut, *whole)).collect();
        ratios.sort_by(f64::total_cmp);
        bars.at_most(&format!("{what}, median of pairs"), ratios[ratios.len() / 2], LIMIT, "×");
        bars.note(&format!("{name}: whole {}, cut {}", spread_ms(&whole_spans), spread_ms(&cut_spans)));
    }
    Ok(rows)
}

fn prepare(device: &CpuDevice, graph: &Graph, options: &SegmentOptions) -> anyhow::Result<Arc<dyn Program>> {
    Ok(device.prepare(graph, &segment(graph, options))?)
}

fn time(device: &CpuDevice, queue: &mut dyn Queue, program: &Arc<dyn Program>) -> anyhow::Result<Span> {
    let inputs = program.inputs().iter().map(|spec| device.buffer(spec)).collect::<Result<_, _>>()?;
    let begin = Instant::now();
    let mut run = Run::new(program.clone(), inputs)?;
    while run.progress() != Progress::Finished {
        run.launch(queue)?;
        run.settle(queue)?;
    }
    run.finish()?;
    Ok(Span::from(begin.elapsed()))
}
