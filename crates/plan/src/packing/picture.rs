//! A deployment drawn as SVG: a row a GPU, a box an instance, coloured by the model it serves.

use super::deployment::Deployment;
use super::slots::{SLICES, Size};
use crate::picture::{colour, escaped};
use std::fmt::Write as _;

const SLICE: f64 = 92.0;
const ROW: f64 = 40.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 44.0;
const LEGEND: f64 = 20.0;
const MARGIN: f64 = 16.0;

/// A picture of a deployment; models are coloured, and listed, in the order of `models`.
#[must_use]
pub fn draw_packing(title: &str, models: &[String], deployment: &Deployment) -> String {
    let mut gpus: Vec<u32> = deployment.instances.iter().map(|instance| instance.gpu).collect();
    gpus.sort_unstable();
    gpus.dedup();
    let width = LEFT + SLICE * f64::from(SLICES) + MARGIN;
    let top = TOP + LEGEND * models.len().div_ceil(4) as f64 + MARGIN;
    let height = top + ROW * gpus.len() as f64 + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{MARGIN}\" y=\"26\" font-size=\"17\">{}</text>\n",
        escaped(title)
    );
    for (number, model) in models.iter().enumerate() {
        let (x, y) = (
            MARGIN + (number % 4) as f64 * (width - 2.0 * MARGIN) / 4.0,
            TOP + (number / 4) as f64 * LEGEND + 10.0,
        );
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"11\" fill=\"{}\"/><text x=\"{:.1}\" y=\"{y:.1}\" font-size=\"12\">{}</text>",
            y - 10.0,
            colour(Some(number)),
            x + 20.0,
            escaped(model)
        );
    }
    for (row, gpu) in gpus.iter().enumerate() {
        let y = top + row as f64 * ROW;
        let _ = writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{:.1}\" font-size=\"13\">GPU {gpu}</text><rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#eeeeee\" stroke=\"#b0b0b0\" stroke-width=\"0.6\"/>",
            y + 22.0,
            SLICE * f64::from(SLICES),
            ROW - 8.0
        );
        let own = deployment.instances.iter().filter(|instance| instance.gpu == *gpu);
        for instance in own {
            let model = models.iter().position(|model| *model == instance.model);
            let x = LEFT + SLICE * f64::from(instance.start);
            let wide = SLICE * f64::from(instance.size.slices());
            // The name of the model only where it has room.
            let short = format!("{}×{}", instance.batch, instance.processes);
            let label =
                if instance.size == Size::One { short } else { format!("{} {short}", instance.model) };
            let _ = writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"3\" fill=\"{}\" stroke=\"#303030\" stroke-width=\"0.8\"><title>{}</title></rect>\
                 <rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"15\" rx=\"2\" fill=\"#ffffff\" fill-opacity=\"0.85\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" text-anchor=\"middle\">{}</text>",
                x + 1.0,
                y + 1.0,
                wide - 2.0,
                ROW - 10.0,
                colour(model),
                escaped(&instance.model),
                x + 6.0,
                y + 8.0,
                wide - 12.0,
                x + wide / 2.0,
                y + 19.5,
                escaped(&label)
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}
