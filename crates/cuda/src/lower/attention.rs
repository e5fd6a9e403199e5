//! Attention in one kernel: `softmax(scale · q kᵀ + mask) v` with tensor cores and a running softmax.
//!
//! A block of four warps takes 16, 32 or 64 rows of q of one head, a warp 16 of them; warps that share rows split the keys
//! and join their partial sums at the end (FlashAttention, section 3.1, split over keys). Tiles of 64 rows of k and v pass
//! through shared memory.

use super::expression::literal_f32;
use super::pointwise::Generated;
use super::{Kind, View};
use std::fmt::Write as _;

/// The operands: `q [a, h, m, d]`, `k [a, h, n, d]`, `v [a, h, n, e]`, `out [a, h, m, e]`, `mask` broadcast to `[a, h, m, n]`.
pub(crate) struct Attention<'v> {
    pub(crate) q: &'v View,
    pub(crate) k: &'v View,
    pub(crate) v: &'v View,
    pub(crate) mask: Option<&'v View>,
    pub(crate) out: &'v View,
    pub(crate) scale: f32,
}

/// Whether the kernel takes heads of this size in this type.
pub(crate) const fn supports(kind: Kind, head: usize) -> bool {
    match kind {
        Kind::F32 => head.is_multiple_of(8) && head <= 64,
        Kind::F16 | Kind::Bf16 => head.is_multiple_of(16) && head <= 128,
        _ => false,
    }
}

const TEMPLATE_HALF: &str = include_str!("../kernels/attention_half.cu");
const TEMPLATE_SINGLE: &str = include_str!("../kernels/attention_tf32.cu");

/// Whether rows can be read sixteen bytes at a time.
fn is_wide(view: &View) -> bool {
    let each = 16 / view.kind.size();
    view.strides[3] == 1
        && view.shape[3].is_multiple_of(each)
        && view.offset.is_multiple_of(each)
        && view.strides[..3].iter().all(|stride| stride.unsigned_abs().is_multiple_of(each))
}

/// Blocks that fill a large device once.
const BLOCKS: usize = 256;

impl Attention<'_> {
    /// Warps of a block that take rows of their own: as many as leave enough blocks.
    fn warp_rows(&self) -> usize {
        let (pairs, rows) = (self.q.shape[0] * self.q.shape[1], self.q.shape[2]);
        [4, 2].into_iter().find(|warps| pairs * rows.div_ceil(16 * warps) >= BLOCKS).unwrap_or(1)
    }

    pub(crate) fn generate(&self) -> Generated {
        let (heads, m, d) = (self.q.shape[1], self.q.shape[2], self.q.shape[3]);
        let n = self.k.shape[2];
        let kind = self.q.kind;
        let mut source = String::new();
        let mut define = |name: &str, value: String| {
            let plain = name.split('(').next().unwrap_or(name);
            let _ = writeln!(source, "#undef {plain}\n#define {name} {value}");
        };
        define("T", kind.stored().into());
        define("HEADS", heads.to_string());
        define("ROWS", m.to_string());
        define("KEYS", n.to_string());
        define("D", d.to_string());
        define("SCALE", literal_f32(self.scale * std::f32::consts::LOG2_E));
        let warp_rows = self.warp_rows();
        define("WARP_ROWS", warp_rows.to_string());
        define("STAGES", if kind == Kind::F32 || d > 64 { "1" } else { "2" }.into());
        define("WIDE", u8::from([self.k, self.v].iter().all(|view| is_wide(view))).to_string());
        define("MMA", if kind == Kind::Bf16 { "bf16".into() } else { "f16".into() });
        for (name, view) in [("Q", self.q), ("K", self.k), ("V", self.v), ("O", self.out)] {
            for (axis, letter) in ["A", "H", "R", "D"].iter().enumerate() {
                define(&format!("{name}{letter}"), format!("{}LL", view.strides[axis]));
            }
        }
        match self.mask {
            Some(mask) => {
                define("MASK_PARAMETER", format!("const {}* __restrict__ mask,", mask.kind.stored()));
                let s = &mask.strides;
                define(
                    "MASK(a, h, r, c)",
                    format!(
                        "(load(mask[(a) * {}LL + (h) * {}LL + (r) * {}LL + (c) * {}LL]) * 1.44269504088896341f)",
                        s[0], s[1], s[2], s[3]
                    ),
                );
            }
            None => {
                define("MASK_PARAMETER", String::new());
                define("MASK(a, h, r, c)", "0.f".into());
            }
        }
        source.push_str(if kind == Kind::F32 { TEMPLATE_SINGLE } else { TEMPLATE_HALF });
        source.push_str("#undef T\n#undef D\n#undef MASK\n");
        let tiles = u32::try_from(m.div_ceil(16 * warp_rows)).unwrap_or(u32::MAX);
        let pairs = u32::try_from(self.q.shape[0] * heads).unwrap_or(u32::MAX);
        Generated { source, grid: [tiles, pairs, 1], block: 128 }
    }
}
