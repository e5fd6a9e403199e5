//! Graphs drawn as SVG, operators coloured by the part that runs them.
//!
//! Operators stand in columns by the longest path that leads to them; columns run from left to right and break like
//! lines of text. Operators of the backward pass have a hollow middle.

use crate::operators::{OperatorGraph, adjacency, topological};
use std::fmt::Write as _;
use thiserror::Error;

/// Operators that are drawn.
pub const DRAWN_MAX: usize = 6_000;

/// Colours told apart by people with the common forms of colour blindness (Okabe and Ito), then darker ones.
const COLOURS: [&str; 16] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#787878", "#004b75",
    "#976800", "#00664b", "#874f6e", "#38769a", "#8b3d00", "#9c942b", "#3c3c3c",
];

/// An operator in no part.
const NOWHERE: &str = "#ffffff";

const WIDTH: f64 = 1_400.0;
const MARGIN: f64 = 16.0;
const COLUMN: f64 = 26.0;
const ROW: f64 = 14.0;
const BOX: (f64, f64) = (14.0, 9.0);
const LEGEND: f64 = 20.0;
const HEAD: f64 = 34.0;

/// Why there is no picture.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PictureError {
    /// More than anybody could see.
    #[error("the graph has {found} operators, at most {DRAWN_MAX} are drawn")]
    TooLarge {
        /// How many there are.
        found: usize,
    },
}

struct Layout {
    place: Vec<(f64, f64)>,
    /// The line of columns that each operator stands in.
    line: Vec<usize>,
    height: f64,
}

/// A picture of `graph`. `part_of` names the part of each operator, `legend` has a line for each part.
///
/// # Errors
///
/// When the graph is too large to be seen.
pub fn draw(
    graph: &OperatorGraph,
    title: &str,
    part_of: &[Option<usize>],
    legend: &[String],
) -> Result<String, PictureError> {
    let found = graph.operators().len();
    if found > DRAWN_MAX {
        return Err(PictureError::TooLarge { found });
    }
    let top = HEAD + LEGEND * legend.len().div_ceil(3) as f64 + MARGIN;
    let layout = layout(graph, top);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{0:.0}\" viewBox=\"0 0 {WIDTH} {0:.0}\" font-family=\"sans-serif\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{MARGIN}\" y=\"24\" font-size=\"17\">{1}</text>\n",
        layout.height,
        escaped(title)
    );
    for (number, line) in legend.iter().enumerate() {
        let x = MARGIN + (number % 3) as f64 * (WIDTH - 2.0 * MARGIN) / 3.0;
        let y = HEAD + (number / 3) as f64 * LEGEND + 12.0;
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"10\" fill=\"{}\"/><text x=\"{:.1}\" y=\"{y:.1}\" font-size=\"12\">{}</text>",
            y - 9.0,
            colour(Some(number)),
            x + 20.0,
            escaped(line)
        );
    }
    edges(graph, &layout, part_of, &mut svg);
    for (at, operator) in graph.operators().iter().enumerate() {
        let (x, y) = layout.place[at];
        let part = part_of.get(at).copied().flatten();
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{}\" height=\"{}\" rx=\"2\" fill=\"{}\" stroke=\"#303030\" stroke-width=\"0.4\"><title>{} {}</title></rect>",
            x - BOX.0 / 2.0,
            y - BOX.1 / 2.0,
            BOX.0,
            BOX.1,
            colour(part),
            operator.id,
            escaped(&operator.name)
        );
        if operator.backward {
            let _ = writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"6\" height=\"3.6\" fill=\"#ffffff\"/>",
                x - 3.0,
                y - 1.8
            );
        }
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// Edges inside a line of columns; those between lines are only hinted at. Edges between parts are darker.
fn edges(graph: &OperatorGraph, layout: &Layout, part_of: &[Option<usize>], svg: &mut String) {
    for &(source, target) in graph.edges() {
        let ((x1, y1), (x2, y2)) = (layout.place[source], layout.place[target]);
        let crossing = part_of.get(source) != part_of.get(target);
        let (ink, width) = if crossing { ("#303030", 0.9) } else { ("#b0b0b0", 0.6) };
        if x2 > x1 && layout.line[source] == layout.line[target] {
            let _ = writeln!(
                svg,
                "<path d=\"M{:.1} {y1:.1}L{:.1} {y2:.1}\" stroke=\"{ink}\" stroke-width=\"{width}\" fill=\"none\"/>",
                x1 + BOX.0 / 2.0,
                x2 - BOX.0 / 2.0
            );
        } else {
            let _ = writeln!(
                svg,
                "<path d=\"M{:.1} {y1:.1}h5M{:.1} {y2:.1}h-5\" stroke=\"{ink}\" stroke-width=\"{width}\" fill=\"none\"/>",
                x1 + BOX.0 / 2.0,
                x2 - BOX.0 / 2.0
            );
        }
    }
}

fn layout(graph: &OperatorGraph, top: f64) -> Layout {
    let count = graph.operators().len();
    let order = topological(count, graph.edges()).unwrap_or_else(|_| (0..count).collect());
    let followers = adjacency(count, graph.edges().iter().copied());
    let depth = depths(graph, &order, &followers);
    let mut columns = vec![Vec::new(); depth.iter().max().map_or(0, |deepest| deepest + 1)];
    for &at in &order {
        columns[depth[at]].push(at);
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive constant")]
    let a_line = ((WIDTH - 2.0 * MARGIN) / COLUMN) as usize;
    let mut place = vec![(0.0, 0.0); count];
    let mut line_of = vec![0; count];
    let mut y = top;
    for (at_line, line) in columns.chunks(a_line).enumerate() {
        let rows = line.iter().map(Vec::len).max().unwrap_or(0);
        for (number, column) in line.iter().enumerate() {
            let x = MARGIN + COLUMN * (number as f64 + 0.5);
            let first = y + (rows - column.len()) as f64 * ROW / 2.0;
            for (row, &at) in column.iter().enumerate() {
                line_of[at] = at_line;
                place[at] = (x, first + (row as f64 + 0.5) * ROW);
            }
        }
        y += rows as f64 * ROW + MARGIN;
    }
    Layout { place, line: line_of, height: y }
}

/// The column of each operator: behind everything that feeds it; what nothing feeds stands just before what it feeds, and
/// the backward pass behind the forward pass.
fn depths(graph: &OperatorGraph, order: &[usize], followers: &[Vec<usize>]) -> Vec<usize> {
    let mut depth = vec![0usize; order.len()];
    let mut fed = vec![false; order.len()];
    for backward in [false, true] {
        let first = if backward { depth.iter().max().map_or(0, |deepest| deepest + 1) } else { 0 };
        let mut pass: Vec<usize> = order.to_vec();
        pass.retain(|&at| graph.operators()[at].backward == backward);
        for &at in &pass {
            depth[at] = depth[at].max(first);
            for &next in &followers[at] {
                depth[next] = depth[next].max(depth[at] + 1);
                fed[next] = true;
            }
        }
        for &at in pass.iter().rev().filter(|&&at| !fed[at]) {
            let before = followers[at].iter().filter(|&&next| graph.operators()[next].backward == backward);
            let nearest = before.map(|&next| depth[next]).min().unwrap_or(first + 1);
            depth[at] = depth[at].max(nearest.saturating_sub(1));
        }
    }
    depth
}

pub(crate) fn colour(part: Option<usize>) -> &'static str {
    part.map_or(NOWHERE, |part| COLOURS[part % COLOURS.len()])
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
