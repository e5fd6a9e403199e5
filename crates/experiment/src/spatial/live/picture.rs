//! Policies side by side at the highest load: a row a mix, a column a figure, a bar a policy, with the spread of repeats.

use super::Settings;
use super::report::{Table, policies};
use super::table::{Place, Row, Spread};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

/// A panel of eleven policies.
const PANEL: (u32, u32) = (300, 250);

/// D-STACK, and the others (Okabe and Ito).
const COLOURS: [RGBColor; 2] = [RGBColor(213, 94, 0), RGBColor(86, 180, 233)];

/// Room for names and numbers left of the bars, of the longest bar.
const NAMES: f64 = 0.75;

/// What a column shows.
struct Figure {
    title: &'static str,
    of: fn(&Row) -> f64,
    /// Drawn as an outline behind it.
    behind: Option<fn(&Row) -> f64>,
}

const FIGURES: [Figure; 4] = [
    Figure { title: "answers in time a second", of: |row| row.done, behind: None },
    Figure { title: "promises missed, %", of: |row| row.missed * 100.0, behind: None },
    Figure { title: "unit-time: useful (filled), held", of: |row| row.useful, behind: Some(|row| row.held) },
    Figure { title: "Jain's index over models", of: |row| row.jain, behind: None },
];

/// Draws skewed rates at the highest load of the live runs; nothing where nothing ran there.
pub(super) fn draw(path: &Path, settings: &Settings, table: &Table<'_>) -> anyhow::Result<()> {
    let most = settings.loads.iter().copied().fold(0.0, f64::max);
    let mut places: Vec<Place> = Vec::new();
    for mix in &settings.mixes {
        let own = table.0.iter().filter(|row| row.driver == "live" && row.rates == "skewed");
        let own = own.filter(|row| row.mix == mix.name && (row.load - most).abs() < 1e-9);
        places.extend(own.map(Row::place).next());
    }
    if places.is_empty() {
        return Ok(());
    }
    let (across, down) = (FIGURES.len(), places.len());
    let size = (PANEL.0 * u32::try_from(across)?, PANEL.1 * u32::try_from(down)?);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    let areas = root.split_evenly((down, across));
    for (area, (place, figure)) in
        areas.iter().zip(places.iter().flat_map(|place| FIGURES.iter().map(move |figure| (place, figure))))
    {
        let bars = |of: fn(&Row) -> f64| -> Vec<(String, Spread)> {
            let spread = |policy| Some((String::from(policy), table.spread(("live", policy, place), of)?));
            policies(settings).into_iter().filter_map(spread).collect()
        };
        let title = format!("{}: {}", place.mix, figure.title);
        panel(area, &title, &bars(figure.of), &figure.behind.map(bars).unwrap_or_default())?;
    }
    root.present()?;
    Ok(())
}

/// A bar a policy, the first on top, with its number beside its name and a whisker from the least to the most.
fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    bars: &[(String, Spread)],
    behind: &[(String, Spread)],
) -> anyhow::Result<()> {
    let all = || bars.iter().chain(behind).map(|(_, spread)| spread.most);
    let most = all().fold(1e-9, f64::max) * 1.08;
    let count = bars.len().max(1) as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 14))
        .margin(6)
        .build_cartesian_2d(-most * NAMES..most, 0.0..count)?;
    for (place, (policy, spread)) in bars.iter().rev().enumerate() {
        let (low, middle) = (place as f64 + 0.15, place as f64 + 0.5);
        let high = place as f64 + 0.85;
        let colour = COLOURS[usize::from(policy != "dstack")];
        if let Some((_, behind)) = behind.iter().find(|(name, _)| name == policy) {
            let frame = Rectangle::new([(0.0, low), (behind.middle, high)], BLACK.mix(0.5).stroke_width(1));
            chart.draw_series([frame])?;
        }
        chart.draw_series([Rectangle::new([(0.0, low), (spread.middle, high)], colour.filled())])?;
        let whisker = [(spread.least, middle), (spread.most, middle)];
        chart.draw_series([PathElement::new(whisker, BLACK.stroke_width(2))])?;
        let style = ("sans-serif", 12).into_font().color(&BLACK);
        let text =
            Text::new(format!("{policy} {}", short(spread.middle)), (-most * NAMES, high - 0.1), style);
        chart.draw_series([text])?;
    }
    chart.draw_series([PathElement::new([(0.0, 0.0), (0.0, count)], BLACK.stroke_width(1))])?;
    Ok(())
}

/// A number in few letters.
fn short(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}
