//! Pictures of a comparison: distributions of completion times and fairness, the cluster over time; as SVG, or as a page
//! of HTML with the table.

use super::load::Case;
use super::run::Run;
use anyhow::{Context as _, bail};
use plotters::coord::Shift;
use plotters::prelude::*;
use sim::cluster::Summary;
use std::fmt::Write as _;
use std::path::Path;

const WIDTH: u32 = 1_200;
const HEIGHT: u32 = 1_160;

/// Colours told apart by people with the common forms of colour blindness (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A curve: its name and points.
type Curve = (String, Vec<(f64, f64)>);

pub(super) fn write(path: &Path, case: &Case, results: &[Run]) -> anyhow::Result<()> {
    let firsts: Vec<&Run> = results.iter().filter(|result| result.seed == 0).collect();
    let picture = draw(case, &firsts)?;
    let text = match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => picture,
        Some("html") => page(case, &firsts, &picture),
        _ => bail!("the report {} must end in .svg or .html", path.display()),
    };
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn draw(case: &Case, results: &[&Run]) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        root.fill(&WHITE)?;
        let (top, rest) = root.split_vertically(400);
        let (middle, bottom) = rest.split_vertically(380);
        let (left, right) = top.split_horizontally(WIDTH / 2);
        let curves = |values: &dyn Fn(&Run) -> Vec<f64>| -> Vec<Curve> {
            results.iter().map(|result| (result.policy.clone(), cumulative(values(result)))).collect()
        };
        let times = curves(&|run| {
            run.outcome
                .completed
                .iter()
                .map(|job| (job.completion().as_secs_f64() / 3_600.0).max(1e-3))
                .collect()
        });
        let title = format!("{}: completion times", case.name);
        distribution(&left, &title, "hours from submission to end", &times)?;
        let fairness = curves(&|run| run.outcome.fairness().into_iter().map(|rho| rho.max(1e-3)).collect());
        distribution(&right, "finish-time fairness", "time over that on an even part", &fairness)?;
        let over = |value: &dyn Fn(&sim::cluster::Sample) -> u32| -> Vec<Curve> {
            let points = |result: &&Run| {
                let point = |sample: &sim::cluster::Sample| {
                    (sample.at.ns() as f64 / 3.6e12, f64::from(value(sample)))
                };
                (result.policy.clone(), result.outcome.samples.iter().map(point).collect())
            };
            results.iter().map(points).collect()
        };
        timeline(&middle, "GPUs that carry a job", "GPUs", &over(&|sample| sample.busy))?;
        timeline(&bottom, "jobs that wait", "jobs", &over(&|sample| sample.waiting))?;
        root.present().context("drawing failed")?;
    }
    Ok(svg)
}

/// The share of values up to each.
fn cumulative(mut values: Vec<f64>) -> Vec<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let count = values.len().max(1) as f64;
    let all = values.iter().enumerate().map(|(rank, value)| (*value, (rank + 1) as f64 / count));
    // A picture shows no more than some thousand points.
    let stride = values.len().div_ceil(2_000).max(1);
    all.enumerate()
        .filter(|(at, _)| at % stride == 0 || at + 1 == values.len())
        .map(|(_, point)| point)
        .collect()
}

fn distribution(area: &Area<'_>, title: &str, what: &str, curves: &[Curve]) -> anyhow::Result<()> {
    let all = || curves.iter().flat_map(|(_, points)| points.iter().map(|(x, _)| *x));
    let (low, high) = all().fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), x| (low.min(x), high.max(x)));
    let low = low.min(high);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(52)
        .build_cartesian_2d((low * 0.9..high * 1.1).log_scale(), 0.0..1.0)?;
    chart.configure_mesh().x_desc(what).y_desc("share of jobs").x_labels(7).light_line_style(WHITE).draw()?;
    for (place, (name, points)) in curves.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .border_style(BLACK.mix(0.3))
        .background_style(WHITE.mix(0.85))
        .draw()?;
    Ok(())
}

fn timeline(area: &Area<'_>, title: &str, what: &str, curves: &[Curve]) -> anyhow::Result<()> {
    let all = || curves.iter().flat_map(|(_, points)| points.iter());
    let begin = all().map(|(x, _)| *x).fold(f64::MAX, f64::min);
    let (end, most) = all().fold((0.0f64, 1.0f64), |(end, most), (x, y)| (end.max(*x), most.max(*y)));
    let begin = begin.min(end);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(begin..end.max(begin + 1e-6), 0.0..most * 1.05)?;
    chart.configure_mesh().x_desc("hours").y_desc(what).light_line_style(WHITE).draw()?;
    for (place, (name, points)) in curves.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        // What was true at an instant stays true until the next.
        let steps =
            points.windows(2).flat_map(|two| [two[0], (two[1].0, two[0].1)]).chain(points.last().copied());
        chart
            .draw_series(LineSeries::new(steps, colour.stroke_width(1)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .border_style(BLACK.mix(0.3))
        .background_style(WHITE.mix(0.85))
        .draw()?;
    Ok(())
}

fn page(case: &Case, results: &[&Run], picture: &str) -> String {
    let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
    let mut rows = String::new();
    for result in results {
        let summary = Summary::of(&result.outcome);
        let hours = |seconds: f64| format!("<td>{:.3}</td>", seconds / 3_600.0);
        let cpu = summary.cpu_use.map_or_else(|| "–".to_owned(), |share| format!("{:.1}", share * 100.0));
        writeln!(
            rows,
            "<tr><th>{}</th><td>{}</td>{}{}{}{}{}<td>{:.2}</td><td>{:.3}</td><td>{:.1}</td><td>{cpu}</td><td>{}</td></tr>",
            escaped(&result.policy),
            summary.jobs,
            hours(summary.mean_completion_s),
            hours(summary.median_completion_s),
            hours(summary.p99_completion_s),
            hours(summary.makespan_s),
            hours(summary.mean_queueing_s),
            summary.fairness_max,
            summary.fairness_jain,
            summary.gpu_use * 100.0,
            summary.restarts
        )
        .expect("writing to a string succeeds");
    }
    let heads =
        "policy|jobs|mean h|median h|p99 h|makespan h|queueing h|worst fairness|Jain|GPU %|CPU %|restarts";
    let heads: String = heads.split('|').map(|head| format!("<th>{head}</th>")).collect();
    let notes: String = case.trace.notes.iter().map(|note| format!("<p>{}</p>\n", escaped(note))).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{name}</title>\n<style>\
         body{{font:15px sans-serif;margin:2em;max-width:1240px}}table{{border-collapse:collapse}}\
         td,th{{padding:.25em .7em;text-align:right;border-bottom:1px solid #ddd}}th:first-child{{text-align:left}}\
         svg{{max-width:100%;height:auto}}</style>\n<h1>{name}</h1>\n<p>{jobs} jobs on {nodes} nodes with {gpus} GPUs.</p>\n\
         {notes}<table><tr>{heads}</tr>\n{rows}</table>\n{picture}\n</html>\n",
        name = escaped(&case.name),
        jobs = case.trace.jobs.len(),
        nodes = case.setup.nodes.len(),
        gpus = case.setup.nodes.iter().map(|node| u32::from(node.gpus)).sum::<u32>(),
    )
}
