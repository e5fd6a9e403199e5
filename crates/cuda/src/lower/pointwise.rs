//! Generated element-wise kernels: one loop over the output's elements in the order they lie in memory, several a thread
//! where strides allow wide loads. Copies and conversions are kernels of this kind without an operator.

use super::{Kind, View};
use crate::lower::view::signed;
use std::fmt::Write as _;

/// An element-wise kernel to be.
pub(crate) struct Pointwise {
    /// Operands as seen from the output: its shape, broadcast axes with stride zero.
    pub(crate) operands: Vec<(String, View)>,
    /// Statements that compute `result` from the operands' names.
    pub(crate) body: Vec<String>,
    pub(crate) result: String,
    pub(crate) out: View,
}

/// Source, grid and block.
pub(crate) struct Generated {
    pub(crate) source: String,
    pub(crate) grid: [u32; 3],
    pub(crate) block: u32,
}

/// Threads of a block.
const BLOCK: u32 = 256;
/// Widest load, in bytes.
const WIDE: usize = 16;

/// A loop dimension: its length, and the step of each operand, the output last.
struct Loop {
    length: usize,
    steps: Vec<isize>,
}

/// Dimensions in the order of the output's memory, neighbours merged where every operand runs evenly over both.
fn loops(views: &[&View], out: &View) -> Vec<Loop> {
    let mut loops: Vec<Loop> = Vec::new();
    for axis in out.order() {
        if out.shape[axis] == 1 {
            continue;
        }
        let steps: Vec<isize> = views.iter().map(|view| view.strides[axis]).collect();
        let length = out.shape[axis];
        match loops.last_mut() {
            Some(outer) if outer.steps.iter().zip(&steps).all(|(o, i)| *o == i * signed(length)) => {
                outer.length *= length;
                outer.steps = steps;
            }
            _ => loops.push(Loop { length, steps }),
        }
    }
    if loops.is_empty() {
        loops.push(Loop { length: 1, steps: vec![0; views.len()] });
    }
    loops
}

/// Elements a thread takes: as many as the widest load allows for every operand that runs with the output.
fn width(loops: &[Loop], views: &[&View]) -> usize {
    let inner = &loops[loops.len() - 1];
    let widest = views.iter().map(|view| view.kind.size()).max().unwrap_or(4);
    let mut width = WIDE / widest.max(2);
    let dense = |place: usize, width: usize| {
        let aligned = views[place].offset.is_multiple_of(width)
            && loops[..loops.len() - 1]
                .iter()
                .all(|outer| outer.steps[place].unsigned_abs().is_multiple_of(width));
        inner.steps[place] != 1 || aligned
    };
    let output = views.len() - 1;
    while width > 1 {
        let fits = inner.length.is_multiple_of(width)
            && inner.steps[output] == 1
            && (0..views.len()).all(|place| dense(place, width));
        if fits {
            break;
        }
        width /= 2;
    }
    width.max(1)
}

impl Pointwise {
    /// The kernel's source.
    #[expect(clippy::too_many_lines, reason = "the text of a kernel from its first line to its last")]
    pub(crate) fn generate(&self) -> Generated {
        let mut views: Vec<&View> = self.operands.iter().map(|(_, view)| view).collect();
        views.push(&self.out);
        let loops = loops(&views, &self.out);
        let width = width(&loops, &views);
        let threads: usize = self.out.elements() / width;
        let mut source = String::new();
        let parameters: Vec<String> = (self.operands.iter().enumerate())
            .map(|(at, (_, view))| format!("const {}* __restrict__ p{at}", view.kind.stored()))
            .collect();
        let out = self.out.kind.stored();
        let comma = if parameters.is_empty() { "" } else { ", " };
        let _ = writeln!(
            source,
            "extern \"C\" __global__ void __launch_bounds__({BLOCK}) NAME({}{comma}{out}* __restrict__ y) {{",
            parameters.join(", ")
        );
        let _ = writeln!(source, "  unsigned r = blockIdx.x * {BLOCK}u + threadIdx.x;");
        let _ = writeln!(source, "  if (r >= {threads}u) return;");
        for (at, one) in loops.iter().enumerate().rev() {
            let length = if at + 1 == loops.len() { one.length / width } else { one.length };
            let scale =
                if at + 1 == loops.len() && width > 1 { format!(" * {width}u") } else { String::new() };
            if at == 0 {
                let _ = writeln!(source, "  const long long c{at} = r{scale};");
            } else {
                let _ = writeln!(source, "  const long long c{at} = (r % {length}u){scale}; r /= {length}u;");
            }
        }
        let address = |place: usize| {
            let terms: Vec<String> = (loops.iter().enumerate())
                .filter(|(_, one)| one.steps[place] != 0)
                .map(|(at, one)| format!("c{at} * {}LL", one.steps[place]))
                .collect();
            if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") }
        };
        let inner = &loops[loops.len() - 1];
        for (at, (name, view)) in self.operands.iter().enumerate() {
            let kind = view.kind.stored();
            let _ = writeln!(source, "  const {kind}* q{at} = p{at} + ({});", address(at));
            match (inner.steps[at], width) {
                (1, 2..) => {
                    let _ = writeln!(
                        source,
                        "  const Pack<{kind}, {width}> l_{name} = *(const Pack<{kind}, {width}>*)q{at};"
                    );
                }
                (0, 2..) => {
                    let _ = writeln!(source, "  const {kind} l_{name} = *q{at};");
                }
                _ => {}
            }
        }
        let _ = writeln!(source, "  {out}* o = y + ({});", address(views.len() - 1));
        if width > 1 {
            let _ = writeln!(
                source,
                "  Pack<{out}, {width}> w;\n  #pragma unroll\n  for (int v = 0; v < {width}; ++v) {{"
            );
        } else {
            source.push_str("  {\n");
        }
        for (at, (name, view)) in self.operands.iter().enumerate() {
            let read = match (inner.steps[at], width) {
                (1, 2..) => format!("load(l_{name}.at[v])"),
                (0, 2..) => format!("load(l_{name})"),
                (step, 2..) => format!("load(q{at}[v * {step}LL])"),
                _ => format!("load(*q{at})"),
            };
            let _ = writeln!(source, "    const {} {name} = {read};", view.kind.computed());
        }
        for line in &self.body {
            let _ = writeln!(source, "    {line}");
        }
        let target = if width > 1 { "w.at[v]" } else { "*o" };
        let _ = writeln!(source, "    {target} = store<{out}>({});\n  }}", self.result);
        if width > 1 {
            let _ = writeln!(source, "  *(Pack<{out}, {width}>*)o = w;");
        }
        source.push_str("}\n");
        let blocks = threads.div_ceil(BLOCK as usize).max(1);
        Generated { source, grid: [u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1], block: BLOCK }
    }

    /// A copy that converts.
    pub(crate) fn copy(from: View, out: View) -> Self {
        let kinds = (from.kind, out.kind);
        let result = match kinds {
            (a, Kind::Bool) if a != Kind::Bool => "(x != 0)".to_owned(),
            _ => "x".to_owned(),
        };
        Self { operands: vec![("x".into(), from)], body: Vec::new(), result, out }
    }
}
