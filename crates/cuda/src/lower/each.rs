//! Kernels with a thread for each output element that compute where it comes from: gathers, padding, resampling, and
//! whatever else is too rare to deserve a faster one.

use super::expression::{literal, literal_f32};
use super::pointwise::Generated;
use super::{Kind, View};
use graph::{Coordinates, Interpolation, PadFill, Rounding};
use std::fmt::Write as _;

const BLOCK: usize = 256;

/// A kernel over the elements of `y`: `body` sees its coordinates `c0`, `c1`, … and sets `value`; operands are `p0`, `p1`, ….
fn each(operands: &[&View], y: &View, body: &str) -> Generated {
    let threads = y.elements();
    let parameters: Vec<String> = operands
        .iter()
        .enumerate()
        .map(|(at, view)| format!("const {}* __restrict__ p{at}, ", view.kind.stored()))
        .collect();
    let out = y.kind.stored();
    let mut source = format!(
        "extern \"C\" __global__ void __launch_bounds__({BLOCK}) NAME({}{out}* __restrict__ y) {{\n  \
         unsigned r = blockIdx.x * {BLOCK}u + threadIdx.x;\n  if (r >= {threads}u) return;\n",
        parameters.concat()
    );
    for axis in y.order().into_iter().rev() {
        let length = y.shape[axis];
        let _ = writeln!(source, "  const long long c{axis} = r % {length}u; r /= {length}u;");
    }
    let _ = writeln!(source, "  {} value;\n{body}", y.kind.computed());
    let coordinates: Vec<String> = (0..y.shape.len()).map(|axis| format!("c{axis}")).collect();
    let _ = writeln!(source, "  y[{}] = store<{out}>(value);\n}}", address(y, &coordinates));
    let blocks = u32::try_from(threads.div_ceil(BLOCK).max(1)).unwrap_or(u32::MAX);
    Generated { source, grid: [blocks, 1, 1], block: 256 }
}

/// The offset of `view` at these coordinates.
fn address(view: &View, coordinates: &[String]) -> String {
    let terms: Vec<String> = (view.strides.iter().zip(coordinates))
        .filter(|(stride, _)| **stride != 0)
        .map(|(stride, coordinate)| format!("({coordinate}) * {stride}LL"))
        .collect();
    if terms.is_empty() { "0".into() } else { terms.join(" + ") }
}

fn names(rank: usize) -> Vec<String> {
    (0..rank).map(|axis| format!("c{axis}")).collect()
}

/// What an element outside reads as: not a number where the type has one.
fn nothing(kind: Kind) -> String {
    if kind.is_float() { "NOT_A_NUMBER".into() } else { "0".into() }
}

/// `data, indices`: rows of `data` along `axis`. An index outside reads as not-a-number, never as other memory.
pub(crate) fn gather(data: &View, indices: &View, axis: usize, y: &View) -> Generated {
    let width = indices.shape.len();
    let all = names(y.shape.len());
    let picked = address(indices, &all[axis..axis + width]);
    let mut from: Vec<String> = all[..axis].to_vec();
    from.push("at".into());
    from.extend(all[axis + width..].iter().cloned());
    let length = data.shape[axis];
    let body = format!(
        "  long long at = load(p1[{picked}]);\n  if (at < 0) at += {length}LL;\n  \
         value = at >= 0 && at < {length}LL ? load(p0[{}]) : {};",
        address(data, &from),
        nothing(y.kind)
    );
    each(&[data, indices], y, &body)
}

/// `data, indices` of equal rank: one element per index along `axis`.
pub(crate) fn gather_elements(data: &View, indices: &View, axis: usize, y: &View) -> Generated {
    let all = names(y.shape.len());
    let mut from = all.clone();
    from[axis] = "at".into();
    let length = data.shape[axis];
    let body = format!(
        "  long long at = load(p1[{}]);\n  if (at < 0) at += {length}LL;\n  \
         value = at >= 0 && at < {length}LL ? load(p0[{}]) : {};",
        address(indices, &all),
        address(data, &from),
        nothing(y.kind)
    );
    each(&[data, indices], y, &body)
}

/// Extends axes.
pub(crate) fn pad(x: &View, before: &[usize], fill: &PadFill, y: &View) -> Generated {
    let mut body = String::from("  bool inside = true;\n");
    let mut from = Vec::new();
    for (axis, before) in before.iter().enumerate() {
        let length = x.shape[axis];
        let _ = writeln!(body, "  long long s{axis} = c{axis} - {before}LL;");
        let _ = match fill {
            PadFill::Constant(_) => {
                writeln!(body, "  inside = inside && s{axis} >= 0 && s{axis} < {length}LL;")
            }
            PadFill::Edge => {
                writeln!(
                    body,
                    "  s{axis} = s{axis} < 0 ? 0 : s{axis} >= {length}LL ? {length}LL - 1 : s{axis};"
                )
            }
            PadFill::Reflect => writeln!(
                body,
                "  s{axis} = s{axis} < 0 ? -s{axis} : s{axis}; s{axis} = s{axis} >= {length}LL ? 2 * ({length}LL - 1) - s{axis} : s{axis};"
            ),
        };
        from.push(format!("s{axis}"));
    }
    let constant = match fill {
        PadFill::Constant(value) => literal(y.kind, *value),
        _ => "0".into(),
    };
    let _ = writeln!(body, "  if (inside) value = load(p0[{}]); else value = {constant};", address(x, &from));
    each(&[x], y, &body)
}

/// Repeats the whole operand, per axis.
pub(crate) fn tile(x: &View, y: &View) -> Generated {
    let from: Vec<String> =
        x.shape.iter().enumerate().map(|(axis, length)| format!("c{axis} % {length}LL")).collect();
    each(&[x], y, &format!("  value = load(p0[{}]);", address(x, &from)))
}

/// Running sum along an axis.
pub(crate) fn cumulative(x: &View, axis: usize, exclusive: bool, reverse: bool, y: &View) -> Generated {
    let mut from = names(x.shape.len());
    let here = from[axis].clone();
    from[axis] = "i".into();
    let last = x.shape[axis];
    let range = match (exclusive, reverse) {
        (false, false) => format!("i = 0; i <= {here}"),
        (true, false) => format!("i = 0; i < {here}"),
        (false, true) => format!("i = {here}; i < {last}LL"),
        (true, true) => format!("i = {here} + 1; i < {last}LL"),
    };
    each(
        &[x],
        y,
        &format!("  value = 0;\n  for (long long {range}; ++i) value += load(p0[{}]);", address(x, &from)),
    )
}

/// Local response normalisation across channels (axis 1).
pub(crate) fn response_norm(x: &View, [alpha, beta, bias]: [f32; 3], size: usize, y: &View) -> Generated {
    let mut from = names(x.shape.len());
    from[1] = "i".into();
    let (channels, half_low) = (x.shape[1], (size - 1) / 2);
    let half_high = size - 1 - half_low;
    let body = format!(
        "  float s = 0.f;\n  for (long long i = max(c1 - {half_low}LL, 0LL); i <= min(c1 + {half_high}LL, {channels}LL - 1); ++i) {{\n    \
         const float v = load(p0[{}]);\n    s += v * v;\n  }}\n  value = load(p0[{}]) / pow({} + {} * s / {size}.f, {});",
        address(x, &from),
        address(x, &names(x.shape.len())),
        literal_f32(bias),
        literal_f32(alpha),
        literal_f32(beta)
    );
    each(&[x], y, &body)
}

/// Resamples by the nearest element or linearly; `scales` are output over input lengths.
pub(crate) fn resize(
    x: &View,
    interpolation: Interpolation,
    coordinates: Coordinates,
    rounding: Rounding,
    scales: &[f32],
    y: &View,
) -> Option<Generated> {
    let mut body = String::new();
    let changed: Vec<usize> = (0..x.shape.len()).filter(|axis| x.shape[*axis] != y.shape[*axis]).collect();
    for axis in &changed {
        let (old, new) = (x.shape[*axis], y.shape[*axis]);
        let scale = literal_f32(scales[*axis]);
        let at = match coordinates {
            Coordinates::HalfPixel => format!("(c{axis} + 0.5f) / {scale} - 0.5f"),
            Coordinates::PytorchHalfPixel if new == 1 => "0.f".into(),
            Coordinates::PytorchHalfPixel => format!("(c{axis} + 0.5f) / {scale} - 0.5f"),
            Coordinates::AlignCorners if new == 1 => "0.f".into(),
            Coordinates::AlignCorners => format!("c{axis} * ({}.f / {}.f)", old - 1, new - 1),
            Coordinates::Asymmetric => format!("c{axis} / {scale}"),
            Coordinates::HalfPixelForNearest => format!("(c{axis} + 0.5f) / {scale}"),
            Coordinates::HalfPixelSymmetric => return None,
        };
        let _ = writeln!(body, "  float f{axis} = {at};");
    }
    let mut from = names(x.shape.len());
    match interpolation {
        Interpolation::Nearest => {
            for axis in &changed {
                let last = x.shape[*axis] - 1;
                let rounded = match rounding {
                    Rounding::Floor => format!("floor(f{axis})"),
                    Rounding::Ceil => format!("ceil(f{axis})"),
                    Rounding::HalfDown => format!("ceil(f{axis} - 0.5f)"),
                    Rounding::HalfUp => format!("floor(f{axis} + 0.5f)"),
                };
                let _ = writeln!(
                    body,
                    "  const long long i{axis} = min(max((long long){rounded}, 0LL), {last}LL);"
                );
                from[*axis] = format!("i{axis}");
            }
            let _ = writeln!(body, "  value = load(p0[{}]);", address(x, &from));
        }
        Interpolation::Linear => {
            for axis in &changed {
                let last = x.shape[*axis] - 1;
                let _ = writeln!(
                    body,
                    "  f{axis} = fminf(fmaxf(f{axis}, 0.f), {last}.f);\n  const long long l{axis} = (long long)f{axis};\n  \
                     const long long h{axis} = min(l{axis} + 1, {last}LL);\n  const float w{axis} = f{axis} - l{axis};"
                );
            }
            body.push_str("  value = 0;\n");
            for corner in 0..1usize << changed.len() {
                let mut weight = String::from("1.f");
                for (bit, axis) in changed.iter().enumerate() {
                    let high = corner >> bit & 1 == 1;
                    from[*axis] = format!("{}{axis}", if high { "h" } else { "l" });
                    weight += &if high { format!(" * w{axis}") } else { format!(" * (1.f - w{axis})") };
                }
                let _ = writeln!(body, "  value += {weight} * load(p0[{}]);", address(x, &from));
            }
        }
        Interpolation::Cubic => return None,
    }
    Some(each(&[x], y, &body))
}

/// A transposed convolution of `[n, c, h, w]` by a filter `[out, in / groups, h, w]`.
pub(crate) struct Transposed<'v> {
    pub(crate) x: &'v View,
    pub(crate) w: &'v View,
    pub(crate) bias: Option<&'v View>,
    pub(crate) y: &'v View,
    pub(crate) strides: [usize; 2],
    pub(crate) dilations: [usize; 2],
    pub(crate) before: [usize; 2],
    pub(crate) groups: usize,
}

impl Transposed<'_> {
    pub(crate) fn generate(&self) -> Generated {
        let (x, w, y) = (self.x, self.w, self.y);
        let (out_each, in_each) = (y.shape[1] / self.groups, x.shape[1] / self.groups);
        let ([sh, sw], [dh, dw], [ph, pw]) = (self.strides, self.dilations, self.before);
        let (kh, kw, h, wd) = (w.shape[2], w.shape[3], x.shape[2], x.shape[3]);
        let text = |parts: [&str; 4]| parts.map(str::to_owned).to_vec();
        let bias = self.bias.map_or("0.f".to_owned(), |bias| format!("load(p2[c1 * {}LL])", bias.strides[0]));
        let body = format!(
            "  float s = {bias};\n  const long long g = c1 / {out_each}LL;\n  for (int i = 0; i < {kh}; ++i) {{\n    \
             const long long hh = c2 + {ph} - i * {dh};\n    if (hh < 0 || hh % {sh} != 0 || hh / {sh} >= {h}) continue;\n    \
             for (int j = 0; j < {kw}; ++j) {{\n      const long long ww = c3 + {pw} - j * {dw};\n      \
             if (ww < 0 || ww % {sw} != 0 || ww / {sw} >= {wd}) continue;\n      for (int k = 0; k < {in_each}; ++k)\n        \
             s += load(p0[{}]) * load(p1[{}]);\n    }}\n  }}\n  value = s;",
            address(
                x,
                &text(["c0", &format!("g * {in_each} + k"), &format!("hh / {sh}"), &format!("ww / {sw}")])
            ),
            address(w, &text(["c1", "k", "i", "j"])),
        );
        let mut operands = vec![x, w];
        operands.extend(self.bias);
        each(&operands, y, &body)
    }
}
