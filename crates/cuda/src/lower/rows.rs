//! Kernels over rows: softmax, layer normalisation, reductions.

use super::expression::literal_f32;
use super::pointwise::Generated;
use super::{Kind, View};
use graph::ReduceKind;
use std::fmt::Write as _;

/// Dimensions of `out` by which a linear index is taken apart, with the steps of `views` along each.
struct Index {
    text: String,
    offsets: Vec<String>,
}

/// Statements that turn `index` into offsets of `views` along `axes` (outermost first), as variables `NAME0`, ….
fn index(views: &[&View], axes: &[usize], index: &str, name: &str) -> Index {
    let mut text = format!("  unsigned {name}_r = {index};\n");
    let mut terms: Vec<Vec<String>> = vec![Vec::new(); views.len()];
    for axis in axes.iter().rev() {
        let length = views[0].shape[*axis];
        if length == 1 {
            continue;
        }
        let _ =
            writeln!(text, "  const long long {name}_c{axis} = {name}_r % {length}u; {name}_r /= {length}u;");
        for (view, terms) in views.iter().zip(&mut terms) {
            if view.strides[*axis] != 0 {
                terms.push(format!("{name}_c{axis} * {}LL", view.strides[*axis]));
            }
        }
    }
    let offsets =
        terms.iter().map(|terms| if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") }).collect();
    Index { text, offsets }
}

fn blocks(count: usize) -> [u32; 3] {
    [u32::try_from(count.max(1)).unwrap_or(u32::MAX), 1, 1]
}

fn others(rank: usize, axes: &[usize]) -> Vec<usize> {
    (0..rank).filter(|axis| !axes.contains(axis)).collect()
}

/// Threads for a row of this length, `each` elements at a time.
fn row_threads(length: usize, each: usize) -> usize {
    length.div_ceil(each).next_multiple_of(32).clamp(32, 256)
}

/// A block's sum or maximum of one value a thread, as a C function body over `threads`.
fn block_reduce(threads: usize) -> String {
    let warps = threads / 32;
    let one = |name: &str, warp: &str, join: &str, start: &str| {
        format!(
            "__device__ __forceinline__ float {name}(float v) {{\n  __shared__ float s[{warps}];\n  v = {warp}(v);\n  \
             __syncthreads();\n  if ((threadIdx.x & 31) == 0) s[threadIdx.x >> 5] = v;\n  __syncthreads();\n  \
             float t = {start};\n  for (int i = 0; i < {warps}; ++i) t = {join};\n  return t;\n}}\n"
        )
    };
    one("NAME_sum", "warp_sum", "t + s[i]", "0.f")
        + &one("NAME_max", "warp_max", "fmaxf(t, s[i])", "-INFINITE")
}

/// Softmax, or its logarithm, along one axis: a block a row, the row kept in registers where it fits.
pub(crate) fn softmax(x: &View, y: &View, axes: &[usize], log: bool) -> Option<Generated> {
    let (length, x_step) = x.collapsed(axes)?;
    let (_, y_step) = y.collapsed(axes)?;
    let rest = others(x.shape.len(), axes);
    let rows: usize = rest.iter().map(|axis| x.shape[*axis]).product();
    let threads = row_threads(length, 4);
    let each = length.div_ceil(threads);
    let Index { text, offsets } = index(&[x, y], &rest, "blockIdx.x", "i");
    let (tx, ty) = (x.kind.stored(), y.kind.stored());
    let keep = each <= 32;
    let value = if keep { "v[j]".to_owned() } else { format!("load(p[(long long)i * {x_step}LL])") };
    let each_of = |body: &str| {
        format!(
            "  #pragma unroll\n  for (int j = 0; j < {each}; ++j) {{ const int i = threadIdx.x + j * {threads}; if (i < {length}) {{ {body} }} }}\n"
        )
    };
    let mut source = block_reduce(threads);
    let _ = writeln!(
        source,
        "extern \"C\" __global__ void __launch_bounds__({threads}) NAME(const {tx}* __restrict__ x, {ty}* __restrict__ y) {{"
    );
    source.push_str(&text);
    let _ = writeln!(source, "  const {tx}* p = x + ({});\n  {ty}* q = y + ({});", offsets[0], offsets[1]);
    if keep {
        let _ = writeln!(source, "  float v[{each}];");
        source.push_str(&each_of(&format!("v[j] = load(p[(long long)i * {x_step}LL]);")));
    }
    source.push_str("  float m = -INFINITE;\n");
    source.push_str(&each_of(&format!("m = fmaxf(m, {value});")));
    source.push_str("  m = NAME_max(m);\n  float s = 0.f;\n");
    source.push_str(&each_of(&format!("s += exp((float){value} - m);")));
    source.push_str("  s = NAME_sum(s);\n");
    let result =
        if log { format!("(float){value} - m - log(s)") } else { format!("exp((float){value} - m) / s") };
    source.push_str(&each_of(&format!("q[(long long)i * {y_step}LL] = store<{ty}>({result});")));
    source.push_str("}\n");
    Some(Generated { source, grid: blocks(rows), block: u32::try_from(threads).ok()? })
}

/// `(x - mean) / sqrt(variance + epsilon) * scale + shift` over the last axis.
pub(crate) struct LayerNorm<'v> {
    pub(crate) x: &'v View,
    pub(crate) y: &'v View,
    /// Scale and shift, when there are.
    pub(crate) affine: Option<(&'v View, &'v View)>,
    pub(crate) epsilon: f32,
    pub(crate) relu: bool,
}

impl LayerNorm<'_> {
    pub(crate) fn generate(&self) -> Option<Generated> {
        let (x, y) = (self.x, self.y);
        let last = x.shape.len() - 1;
        let length = x.shape[last];
        if x.strides[last] != 1 || y.strides[last] != 1 {
            return None;
        }
        let rest = others(x.shape.len(), &[last]);
        let rows: usize = rest.iter().map(|axis| x.shape[*axis]).product();
        let even = |view: &View, width: usize| {
            view.offset.is_multiple_of(width)
                && rest.iter().all(|axis| view.strides[*axis].unsigned_abs().is_multiple_of(width))
        };
        let widest = if x.kind.size() == 2 { 8 } else { 4 };
        let mut width = if widest == 8 && length < 2048 { 4 } else { widest };
        while width > 1 && !(length.is_multiple_of(width) && even(x, width) && even(y, width)) {
            width /= 2;
        }
        let threads = row_threads(length, width);
        let each = length.div_ceil(threads * width);
        let Index { text, offsets } = index(&[x, y], &rest, "blockIdx.x", "i");
        let (tx, ty) = (x.kind.stored(), y.kind.stored());
        let each_of = |body: &str| {
            format!(
                "  #pragma unroll\n  for (int j = 0; j < {each}; ++j) {{ const int i = (threadIdx.x + j * {threads}) * {width}; if (i < {length}) {{ {body} }} }}\n"
            )
        };
        let lanes =
            |body: &str| format!("_Pragma(\"unroll\") for (int v = 0; v < {width}; ++v) {{ {body} }}");
        let mut source = block_reduce(threads);
        let weights = self.affine.map_or(String::new(), |(scale, _)| {
            format!(", const {0}* __restrict__ scale, const {0}* __restrict__ shift", scale.kind.stored())
        });
        let _ = writeln!(
            source,
            "extern \"C\" __global__ void __launch_bounds__({threads}) NAME(const {tx}* __restrict__ x{weights}, {ty}* __restrict__ y) {{"
        );
        source.push_str(&text);
        let _ = writeln!(
            source,
            "  const {tx}* p = x + ({});\n  {ty}* q = y + ({});\n  float a[{each}][{width}];\n  float s = 0.f;",
            offsets[0], offsets[1]
        );
        source.push_str(&each_of(&format!(
            "const Pack<{tx}, {width}> l = *(const Pack<{tx}, {width}>*)(p + i); {}",
            lanes("a[j][v] = load(l.at[v]); s += a[j][v];")
        )));
        let _ = writeln!(source, "  const float mean = NAME_sum(s) / {length}.f;\n  float d = 0.f;");
        source.push_str(&each_of(&lanes("const float c = a[j][v] - mean; d += c * c;")));
        let _ = writeln!(
            source,
            "  const float inverse = rsqrt(NAME_sum(d) / {length}.f + {});",
            literal_f32(self.epsilon)
        );
        let scaled = match self.affine {
            Some(_) => "c * load(scale[i + v]) + load(shift[i + v])",
            None => "c",
        };
        let finished = if self.relu { format!("relu({scaled})") } else { scaled.to_owned() };
        source.push_str(&each_of(&format!(
            "Pack<{ty}, {width}> w; {} *(Pack<{ty}, {width}>*)(q + i) = w;",
            lanes(&format!("const float c = (a[j][v] - mean) * inverse; w.at[v] = store<{ty}>({finished});"))
        )));
        source.push_str("}\n");
        Some(Generated { source, grid: blocks(rows), block: u32::try_from(threads).ok()? })
    }
}

/// A reduction over `axes`, which stay with length one in `y`; the result is multiplied by `scale`.
pub(crate) fn reduce(kind: ReduceKind, x: &View, y: &View, axes: &[usize], scale: Option<f32>) -> Generated {
    let rest = others(x.shape.len(), axes);
    let outputs: usize = rest.iter().map(|axis| x.shape[*axis]).product();
    let count: usize = axes.iter().map(|axis| x.shape[*axis]).product();
    // Rows that lie next to each other in memory are summed by a block each, columns by a thread each.
    let inner = axes.iter().map(|axis| x.strides[*axis].unsigned_abs()).filter(|step| *step > 0).min();
    let summed = matches!(
        kind,
        ReduceKind::Sum | ReduceKind::MeanOfSquares | ReduceKind::Max | ReduceKind::Min | ReduceKind::Product
    );
    let block_each = summed && x.kind != Kind::F64 && x.kind.is_float() && inner == Some(1) && count >= 64;
    // In the order of memory, so that neighbours read neighbours.
    let by_memory = |axes: &[usize]| {
        let order = x.order();
        order.into_iter().filter(|axis| axes.contains(axis)).collect::<Vec<usize>>()
    };
    // An index must count in the original order: the first of equal extremes wins.
    let counted = if summed { by_memory(axes) } else { axes.to_vec() };
    let outer = index(&[x, y], &by_memory(&rest), "o", "o");
    let within = index(&[x], &counted, "e", "e");
    let (tx, ty) = (x.kind.stored(), y.kind.stored());
    let computed = x.kind.computed();
    let (start, join) = joining(kind, x.kind);
    let scale = scale.map_or(String::new(), |scale| format!(" * {}", literal_f32(scale)));
    let mean =
        if kind == ReduceKind::MeanOfSquares { format!(" / (({computed}){count})") } else { String::new() };
    let mut source = String::new();
    let threads = if block_each { row_threads(count, 4) } else { 128 };
    if block_each {
        source.push_str(&block_reduce(threads));
    }
    let _ = writeln!(
        source,
        "extern \"C\" __global__ void __launch_bounds__({threads}) NAME(const {tx}* __restrict__ x, {ty}* __restrict__ y) {{"
    );
    let grid = if block_each {
        source.push_str("  const unsigned o = blockIdx.x;\n");
        blocks(outputs)
    } else {
        let _ = writeln!(
            source,
            "  const unsigned o = blockIdx.x * {threads}u + threadIdx.x;\n  if (o >= {outputs}u) return;"
        );
        blocks(outputs.div_ceil(threads))
    };
    source.push_str(&outer.text);
    let _ = writeln!(source, "  const {tx}* p = x + ({});\n  {start}", outer.offsets[0]);
    let (first, step) = if block_each { ("threadIdx.x".to_owned(), threads) } else { ("0".to_owned(), 1) };
    let _ = writeln!(source, "  for (unsigned e = {first}; e < {count}u; e += {step}u) {{\n{}", within.text);
    let _ = writeln!(source, "    const {computed} v = load(p[{}]);\n    {join}\n  }}", within.offsets[0]);
    let total = match (block_each, kind) {
        (false, _) => "t",
        (true, ReduceKind::Max) => "NAME_max(t)",
        (true, ReduceKind::Min) => "-NAME_max(-t)",
        (true, _) => "NAME_sum(t)",
    };
    let _ = writeln!(source, "  const auto total = {total};");
    let only = if block_each { "if (threadIdx.x == 0) " } else { "" };
    let _ = writeln!(source, "  {only}y[{}] = store<{ty}>(total{mean}{scale});\n}}", outer.offsets[1]);
    if block_each && kind == ReduceKind::Product {
        return reduce_by_threads(kind, x, y, axes);
    }
    Generated { source, grid, block: u32::try_from(threads).unwrap_or(128) }
}

/// Products have no block form: the view is taken as if its rows were far apart.
fn reduce_by_threads(kind: ReduceKind, x: &View, y: &View, axes: &[usize]) -> Generated {
    let exact = View { kind: Kind::F64, ..x.clone() };
    let mut generated = reduce(kind, &exact, y, axes, None);
    generated.source = generated.source.replacen(
        "const double* __restrict__ x",
        &format!("const {}* __restrict__ x", x.kind.stored()),
        1,
    );
    generated.source =
        generated.source.replacen("const double* p", &format!("const {}* p", x.kind.stored()), 1);
    generated
}

fn joining(kind: ReduceKind, of: Kind) -> (String, &'static str) {
    let computed = of.computed();
    let text = |start: &str| format!("{computed} t = {start};");
    match kind {
        ReduceKind::Sum => (text("0"), "t += v;"),
        ReduceKind::Product => (text("1"), "t *= v;"),
        ReduceKind::MeanOfSquares => (text("0"), "t += v * v;"),
        ReduceKind::Max if of.is_float() => (text("-INFINITE"), "t = t > v ? t : v;"),
        ReduceKind::Min if of.is_float() => (text("INFINITE"), "t = t < v ? t : v;"),
        ReduceKind::Max => ("long long t = 0x8000000000000000LL;".into(), "t = t > v ? t : v;"),
        ReduceKind::Min => ("long long t = 0x7fffffffffffffffLL;".into(), "t = t < v ? t : v;"),
        ReduceKind::ArgMax { last } => (
            format!("long long t = 0; {computed} best = 0;"),
            if last {
                "if (e == 0 || v >= best) { best = v; t = e; }"
            } else {
                "if (e == 0 || v > best) { best = v; t = e; }"
            },
        ),
        ReduceKind::ArgMin { last } => (
            format!("long long t = 0; {computed} best = 0;"),
            if last {
                "if (e == 0 || v <= best) { best = v; t = e; }"
            } else {
                "if (e == 0 || v < best) { best = v; t = e; }"
            },
        ),
        ReduceKind::All => ("bool t = true;".into(), "t = t && v;"),
        ReduceKind::Any => ("bool t = false;".into(), "t = t || v;"),
    }
}
