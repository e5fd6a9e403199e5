//! Kernels over sliding windows, channels last: pooling, and convolutions whose channels do not mix.

use super::expression::literal_f32;
use super::pointwise::Generated;
use super::step::Activation;
use super::{Kind, View};
use std::fmt::Write as _;

/// A two-dimensional window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window2 {
    pub(crate) kernel: [usize; 2],
    pub(crate) strides: [usize; 2],
    pub(crate) dilations: [usize; 2],
    pub(crate) before: [usize; 2],
}

/// What a pool computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    Max,
    Sum { normalize: bool, count_include_pad: bool },
}

const BLOCK: usize = 128;

/// Channels a thread takes: as many as one wide load brings.
fn width(views: &[&View], channels: usize) -> usize {
    let widest = views.iter().map(|view| view.kind.size()).max().unwrap_or(4);
    let mut width = 16 / widest.max(2);
    let even = |view: &View, width: usize| {
        view.strides[1] == 1
            && view.offset.is_multiple_of(width)
            && [0, 2, 3].iter().all(|axis| {
                view.strides[*axis].unsigned_abs().is_multiple_of(width) || view.shape[*axis] == 1
            })
    };
    while width > 1 && !(channels.is_multiple_of(width) && views.iter().all(|view| even(view, width))) {
        width /= 2;
    }
    width
}

/// Statements that give `n, oh, ow, c` of this thread's output, channels fastest.
fn coordinates(y: &View, width: usize) -> (String, usize) {
    let [n, c, h, w] = [y.shape[0], y.shape[1] / width, y.shape[2], y.shape[3]];
    let threads = n * c * h * w;
    let text = format!(
        "  unsigned r = blockIdx.x * {BLOCK}u + threadIdx.x;\n  if (r >= {threads}u) return;\n  \
         const int c = (r % {c}u) * {width}; r /= {c}u;\n  const int ow = r % {w}u; r /= {w}u;\n  \
         const int oh = r % {h}u; const long long n = r / {h}u;\n"
    );
    (text, threads)
}

fn at(view: &View, n: &str, c: &str, h: &str, w: &str) -> String {
    let [sn, sc, sh, sw] = [view.strides[0], view.strides[1], view.strides[2], view.strides[3]];
    format!("({n}) * {sn}LL + ({c}) * {sc}LL + ({h}) * {sh}LL + ({w}) * {sw}LL")
}

fn generated(source: String, threads: usize) -> Generated {
    let blocks = u32::try_from(threads.div_ceil(BLOCK).max(1)).unwrap_or(u32::MAX);
    Generated { source, grid: [blocks, 1, 1], block: 128 }
}

/// A pool of `x` into `y`, both `[n, c, h, w]` in any layout.
pub(crate) fn pool(pool: Pool, window: Window2, x: &View, y: &View) -> Generated {
    let width = width(&[x, y], y.shape[1]);
    let (place, threads) = coordinates(y, width);
    let (tx, ty) = (x.kind.stored(), y.kind.stored());
    let [kh, kw] = window.kernel;
    let ([sh, sw], [dh, dw], [ph, pw]) = (window.strides, window.dilations, window.before);
    let (h, w) = (x.shape[2], x.shape[3]);
    let (start, join) = match pool {
        Pool::Max => ("-INFINITE", "a[v] = load(l.at[v]) > a[v] ? load(l.at[v]) : a[v];"),
        Pool::Sum { .. } => ("0.f", "a[v] += load(l.at[v]);"),
    };
    let divided = match pool {
        Pool::Sum { normalize: true, count_include_pad: true } => format!(" / {}.f", kh * kw),
        Pool::Sum { normalize: true, count_include_pad: false } => " / (float)max(count, 1)".to_owned(),
        _ => String::new(),
    };
    let mut source = format!(
        "extern \"C\" __global__ void __launch_bounds__({BLOCK}) NAME(const {tx}* __restrict__ x, {ty}* __restrict__ y) {{\n{place}"
    );
    let _ = write!(
        source,
        "  float a[{width}];\n  #pragma unroll\n  for (int v = 0; v < {width}; ++v) a[v] = {start};\n  int count = 0;\n  \
         for (int i = 0; i < {kh}; ++i) {{\n    const int ih = oh * {sh} + i * {dh} - {ph};\n    if (ih < 0 || ih >= {h}) continue;\n    \
         for (int j = 0; j < {kw}; ++j) {{\n      const int iw = ow * {sw} + j * {dw} - {pw};\n      if (iw < 0 || iw >= {w}) continue;\n      ++count;\n      \
         const Pack<{tx}, {width}> l = *(const Pack<{tx}, {width}>*)(x + {});\n      \
         #pragma unroll\n      for (int v = 0; v < {width}; ++v) {{ {join} }}\n    }}\n  }}\n  Pack<{ty}, {width}> o;\n  #pragma unroll\n  \
         for (int v = 0; v < {width}; ++v) o.at[v] = store<{ty}>(a[v]{divided});\n  *(Pack<{ty}, {width}>*)(y + {}) = o;\n}}\n",
        at(x, "n", "c", "ih", "iw"),
        at(y, "n", "c", "oh", "ow"),
    );
    generated(source, threads)
}

/// A convolution in which every channel has its own filter `[h, w, channels]`. `before` is applied to each element read.
pub(crate) struct Depthwise<'v> {
    pub(crate) x: &'v View,
    pub(crate) weight: Kind,
    pub(crate) bias: Option<Kind>,
    pub(crate) residual: Option<&'v View>,
    pub(crate) y: &'v View,
    pub(crate) window: Window2,
    pub(crate) activation: Activation,
}

pub(crate) fn activate(activation: Activation, x: &str) -> String {
    match activation {
        Activation::None => x.to_owned(),
        Activation::Relu => format!("relu({x})"),
        Activation::Clipped(most) => format!("fminf(relu({x}), {})", literal_f32(most)),
        Activation::GeluTanh => super::expression::gelu_tanh(x),
    }
}

impl Depthwise<'_> {
    pub(crate) fn generate(&self) -> Generated {
        let mut views = vec![self.x, self.y];
        views.extend(self.residual);
        let channels = self.y.shape[1];
        let mut width = width(&views, channels);
        if self.weight.size() == 4 {
            width = width.min(4);
        }
        let (place, threads) = coordinates(self.y, width);
        let (tx, ty, tw) = (self.x.kind.stored(), self.y.kind.stored(), self.weight.stored());
        let [kh, kw] = self.window.kernel;
        let ([sh, sw], [dh, dw], [ph, pw]) = (self.window.strides, self.window.dilations, self.window.before);
        let (h, w) = (self.x.shape[2], self.x.shape[3]);
        let bias =
            self.bias.map_or(String::new(), |kind| format!(", const {}* __restrict__ b", kind.stored()));
        let residual = self
            .residual
            .map_or(String::new(), |view| format!(", const {}* __restrict__ z", view.kind.stored()));
        let mut source = format!(
            "extern \"C\" __global__ void __launch_bounds__({BLOCK}) NAME(const {tx}* __restrict__ x, const {tw}* __restrict__ f{bias}{residual}, {ty}* __restrict__ y) {{\n{place}  float a[{width}];\n"
        );
        let start = if self.bias.is_some() { "load(b[c + v])" } else { "0.f" };
        let _ = write!(
            source,
            "  #pragma unroll\n  for (int v = 0; v < {width}; ++v) a[v] = {start};\n  #pragma unroll\n  \
             for (int i = 0; i < {kh}; ++i) {{\n    const int ih = oh * {sh} + i * {dh} - {ph};\n    if (ih < 0 || ih >= {h}) continue;\n    #pragma unroll\n    \
             for (int j = 0; j < {kw}; ++j) {{\n      const int iw = ow * {sw} + j * {dw} - {pw};\n      if (iw < 0 || iw >= {w}) continue;\n      \
             const Pack<{tx}, {width}> l = *(const Pack<{tx}, {width}>*)(x + {});\n      \
             const Pack<{tw}, {width}> g = *(const Pack<{tw}, {width}>*)(f + (i * {kw} + j) * {channels} + c);\n      \
             #pragma unroll\n      for (int v = 0; v < {width}; ++v) a[v] += load(l.at[v]) * load(g.at[v]);\n    }}\n  }}\n",
            at(self.x, "n", "c", "ih", "iw"),
        );
        let mut value = "a[v]".to_owned();
        if let Some(view) = self.residual {
            let _ = writeln!(
                source,
                "  const Pack<{0}, {width}> k = *(const Pack<{0}, {width}>*)(z + {1});",
                view.kind.stored(),
                at(view, "n", "c", "oh", "ow")
            );
            value = "(a[v] + load(k.at[v]))".to_owned();
        }
        let _ = write!(
            source,
            "  Pack<{ty}, {width}> o;\n  #pragma unroll\n  for (int v = 0; v < {width}; ++v) o.at[v] = store<{ty}>({});\n  \
             *(Pack<{ty}, {width}>*)(y + {}) = o;\n}}\n",
            activate(self.activation, &value),
            at(self.y, "n", "c", "oh", "ow"),
        );
        generated(source, threads)
    }
}
