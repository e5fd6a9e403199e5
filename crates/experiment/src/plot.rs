//! Bar charts and distributions, as SVG.

use plotters::prelude::*;
use std::path::Path;

/// Colours told apart by people with the common forms of colour blindness (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
];

/// Draws the share of requests answered within a time, one curve a name; times in ms on a logarithmic axis.
pub(crate) fn distributions(path: &Path, title: &str, curves: &[(String, Vec<f64>)]) -> anyhow::Result<()> {
    let all = || curves.iter().flat_map(|(_, values)| values.iter().copied());
    let (low, high) = all().fold((f64::MAX, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
    let root = SVGBackend::new(path, (900, 480)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d((low * 0.9..high * 1.1).log_scale(), 0.0..1.0)?;
    chart.configure_mesh().x_desc("ms").y_desc("share answered within").light_line_style(WHITE).draw()?;
    for (place, (name, values)) in curves.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len().max(1) as f64;
        let points = sorted.iter().enumerate().map(|(rank, value)| (*value, (rank + 1) as f64 / count));
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(name.clone())
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
