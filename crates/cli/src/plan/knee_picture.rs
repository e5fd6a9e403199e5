//! Latency over units, drawn: a panel a model, a curve a batch, the fitted model dotted, knees marked.

use super::knee::Studied;
use anyhow::Context as _;
use plotters::prelude::*;
use vocab::Span;

const PANEL: (u32, u32) = (600, 400);

/// Batches that are drawn of a model; the others lie between them.
const CURVES: usize = 6;

/// Colours told apart by people with the common forms of colour blindness (Okabe and Ito).
const COLOURS: [RGBColor; CURVES] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
];

/// The picture of all models.
pub(crate) fn draw(studied: &[Studied]) -> anyhow::Result<String> {
    let columns = studied.len().clamp(1, 2);
    let rows = studied.len().div_ceil(columns).max(1);
    let size = (PANEL.0 * u32::try_from(columns)?, PANEL.1 * u32::try_from(rows)?);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        for (area, model) in root.split_evenly((rows, columns)).iter().zip(studied) {
            panel(area, model)?;
        }
        root.present().context("drawing failed")?;
    }
    Ok(svg)
}

fn panel(area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>, model: &Studied) -> anyhow::Result<()> {
    let shown = shown(model);
    let times = || shown.iter().flat_map(|(_, curve)| curve.iter().map(|(_, time)| time.as_ms_f64()));
    let (low, high) = times().fold((f64::MAX, 1e-6f64), |(low, high), ms| (low.min(ms), high.max(ms)));
    let whole = f64::from(model.surface.whole());
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{} on {}", model.name, model.device), ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(56)
        // Names of curves stand beside them.
        .build_cartesian_2d(0.0..whole * 1.28, (low.min(high) * 0.8..high * 1.6).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("units  (● knee by 1/(L²·S), ▲ within ε of the whole, dotted: the fitted model)")
        .y_desc("ms")
        .light_line_style(WHITE)
        .draw()?;
    for (place, (batch, curve)) in shown.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        let points: Vec<(f64, f64)> =
            curve.iter().map(|(units, time)| (f64::from(*units), time.as_ms_f64())).collect();
        let at = |wanted: u32| points.iter().copied().filter(move |point| point.0 == f64::from(wanted));
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
            .label(format!("batch {batch}"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 2, colour.filled())))?;
        if let Ok(fit) = &model.fit {
            let begin = curve.first().map_or(1, |(units, _)| *units);
            let own = (begin..=model.surface.whole()).map(|units| {
                (f64::from(units), fit.model.latency(units, *batch).max(Span::from_ns(1)).as_ms_f64())
            });
            chart.draw_series(DashedLineSeries::new(own, 2, 5, colour.stroke_width(1)))?;
        }
        if let Some((_, knee)) = model.knees.iter().find(|(own, _)| own == batch) {
            let circles = at(knee.efficient).map(|point| Circle::new(point, 6, colour.filled()));
            chart.draw_series(circles)?;
            let triangles = at(knee.sufficient).map(|point| TriangleMarker::new(point, 8, colour.filled()));
            chart.draw_series(triangles)?;
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleRight)
        .border_style(BLACK.mix(0.3))
        .background_style(WHITE)
        .draw()?;
    Ok(())
}

/// The curves that are drawn: evenly chosen batches, the smallest and the largest among them.
fn shown(model: &Studied) -> Vec<(u32, Vec<(u32, Span)>)> {
    let batches = model.surface.batches();
    let last = batches.len().saturating_sub(1);
    let count = batches.len().min(CURVES);
    let mut places: Vec<usize> = (0..count).map(|at| at * last / count.saturating_sub(1).max(1)).collect();
    places.dedup();
    places.into_iter().map(|place| (batches[place], model.surface.curve(batches[place]))).collect()
}
