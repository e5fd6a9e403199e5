//! Distributions and curves, as SVG.

use plotters::prelude::*;
use std::path::Path;

/// A curve: its name and points.
pub(crate) type Curve = (String, Vec<(f64, f64)>);

/// Colours told apart by people with the common forms of colour blindness (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(110, 110, 110),
];

const SIZE: (u32, u32) = (900, 480);

/// The share of values up to each.
pub(crate) fn cumulative(mut values: Vec<f64>) -> Vec<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let count = values.len().max(1) as f64;
    values.into_iter().enumerate().map(|(rank, value)| (value.max(1e-3), (rank + 1) as f64 / count)).collect()
}

/// Draws shares from 0 to 1 over a logarithmic axis.
pub(crate) fn shares(path: &Path, title: &str, axes: (&str, &str), curves: &[Curve]) -> anyhow::Result<()> {
    let all = || curves.iter().flat_map(|(_, points)| points.iter().map(|(x, _)| *x));
    let (low, high) = all().fold((f64::MAX, 1e-3f64), |(low, high), x| (low.min(x), high.max(x)));
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d((low.min(high) * 0.9..high * 1.1).log_scale(), 0.0..1.0)?;
    chart.configure_mesh().x_desc(axes.0).y_desc(axes.1).light_line_style(WHITE).draw()?;
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
    root.present()?;
    Ok(())
}

/// Draws curves over linear axes from 0 up, with a mark at each point.
pub(crate) fn lines(path: &Path, title: &str, axes: (&str, &str), curves: &[Curve]) -> anyhow::Result<()> {
    let all = || curves.iter().flat_map(|(_, points)| points.iter());
    let begin = all().map(|(x, _)| *x).fold(f64::MAX, f64::min);
    let (end, most) = all().fold((0.0f64, 0.0f64), |(end, most), (x, y)| (end.max(*x), most.max(*y)));
    // Many names stand above the curves, not on them.
    let room = if curves.len() > COLOURS.len() { 1.6 } else { 1.05 };
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(begin.min(end)..end * 1.02, 0.0..most * room)?;
    chart.configure_mesh().x_desc(axes.0).y_desc(axes.1).light_line_style(WHITE).draw()?;
    for (place, (name, points)) in curves.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        // Colours that come a second time are thin, with hollow marks.
        let second = place >= COLOURS.len();
        let line = colour.stroke_width(if second { 1 } else { 3 });
        let mark = if second { colour.stroke_width(1) } else { colour.filled() };
        chart
            .draw_series(LineSeries::new(points.iter().copied(), line))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], line));
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 4, mark)))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .border_style(BLACK.mix(0.3))
        .background_style(WHITE.mix(0.85))
        .draw()?;
    root.present()?;
    Ok(())
}

/// Draws the share of requests answered within a time, one curve a name; times in ms on a logarithmic axis.
pub(crate) fn distributions(path: &Path, title: &str, curves: &[(String, Vec<f64>)]) -> anyhow::Result<()> {
    let curves: Vec<Curve> =
        curves.iter().map(|(name, values)| (name.clone(), cumulative(values.clone()))).collect();
    shares(path, title, ("ms", "share answered within"), &curves)
}
