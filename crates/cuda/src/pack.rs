//! Rearranges a model's constants into the bytes the device reads.

use crate::lower::{Kind, Packing, Weight};
use graph::{DType, Graph, ValueId, WeightLayout};
use half::{bf16, f16};

/// The bytes of one packed weight.
pub(crate) fn pack(graph: &Graph, weight: &Weight) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(weight.elements * weight.kind.size());
    for part in &weight.parts {
        bytes.extend(pack_part(graph, *part, weight));
    }
    bytes
}

fn pack_part(graph: &Graph, id: ValueId, weight: &Weight) -> Vec<u8> {
    let value = graph.value(id);
    let Some(constant) = &value.constant else { return Vec::new() };
    let bytes = constant.as_bytes();
    if value.dtype != DType::F32 {
        return moved(bytes, value.dtype.size(), &value.shape, weight);
    }
    let floats: Vec<f32> =
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let floats = arranged(&floats, &value.shape, &weight.packing);
    match weight.kind {
        Kind::F16 => floats.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect(),
        Kind::Bf16 => floats.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect(),
        _ => floats.iter().flat_map(|x| x.to_le_bytes()).collect(),
    }
}

/// Elements of other types, moved as they are.
fn moved(bytes: &[u8], size: usize, shape: &[usize], weight: &Weight) -> Vec<u8> {
    let elements: Vec<&[u8]> = bytes.chunks_exact(size.max(1)).collect();
    arranged(&elements, shape, &weight.packing).concat()
}

/// The elements of a constant of `shape`, rearranged.
fn arranged<T: Copy + Default>(from: &[T], shape: &[usize], packing: &Packing) -> Vec<T> {
    match packing {
        Packing::Plain => from.to_vec(),
        Packing::Repeated { count } => vec![from.first().copied().unwrap_or_default(); *count],
        Packing::FirstRow { rows } => from[..from.len() / (*rows).max(1)].to_vec(),
        Packing::Permuted { order } => permuted(from, shape, order),
        Packing::Filter { source, out, input, window: [h, w], padded } => {
            let mut to = vec![T::default(); out * h * w * padded];
            for o in 0..*out {
                for y in 0..*h {
                    for x in 0..*w {
                        for i in 0..*input {
                            let place = filter(*source, [o, i, y, x], [*out, *input, *h, *w]);
                            to[((o * h + y) * w + x) * padded + i] = from[place];
                        }
                    }
                }
            }
            to
        }
        Packing::Depthwise { source, channels, window: [h, w] } => {
            let mut to = vec![T::default(); channels * h * w];
            for c in 0..*channels {
                for y in 0..*h {
                    for x in 0..*w {
                        to[(y * w + x) * channels + c] =
                            from[filter(*source, [c, 0, y, x], [*channels, 1, *h, *w])];
                    }
                }
            }
            to
        }
    }
}

/// The place of a filter element in the file's layout.
const fn filter(source: WeightLayout, [o, i, y, x]: [usize; 4], [out, input, h, w]: [usize; 4]) -> usize {
    match source {
        WeightLayout::OutInSpatial => ((o * input + i) * h + y) * w + x,
        WeightLayout::SpatialInOut => ((y * w + x) * input + i) * out + o,
        WeightLayout::OutSpatialIn => ((o * h + y) * w + x) * input + i,
    }
}

/// A row-major tensor written in another order of its axes.
fn permuted<T: Copy>(from: &[T], shape: &[usize], order: &[usize]) -> Vec<T> {
    if let (2, [1, 0]) = (shape.len(), order) {
        return transposed(from, shape[0], shape[1]);
    }
    let mut steps = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        steps[axis - 1] = steps[axis] * shape[axis];
    }
    let mut to = Vec::with_capacity(from.len());
    let mut at = vec![0; order.len()];
    for _ in 0..from.len() {
        to.push(from[at.iter().zip(order).map(|(index, axis)| index * steps[*axis]).sum::<usize>()]);
        for place in (0..order.len()).rev() {
            at[place] += 1;
            if at[place] < shape[order[place]] {
                break;
            }
            at[place] = 0;
        }
    }
    to
}

/// In tiles that stay in the cache.
fn transposed<T: Copy>(from: &[T], rows: usize, columns: usize) -> Vec<T> {
    const TILE: usize = 32;
    let mut to = from.to_vec();
    for row in (0..rows).step_by(TILE) {
        for column in (0..columns).step_by(TILE) {
            for r in row..(row + TILE).min(rows) {
                for c in column..(column + TILE).min(columns) {
                    to[c * rows + r] = from[r * columns + c];
                }
            }
        }
    }
    to
}

#[cfg(test)]
mod tests {
    use super::{arranged, permuted};
    use crate::lower::Packing;
    use graph::WeightLayout;

    #[test]
    fn axes_are_permuted() {
        let from: Vec<u32> = (0..24).collect();
        assert_eq!(permuted(&from[..6], &[2, 3], &[1, 0]), [0, 3, 1, 4, 2, 5]);
        let moved = permuted(&from, &[2, 3, 4], &[2, 0, 1]);
        assert_eq!(moved[..6], [0, 4, 8, 12, 16, 20]);
    }

    #[test]
    fn filters_put_channels_last_and_pad_them() {
        // Two outputs, three inputs, a window of one by two.
        let from: Vec<u32> = (1..=12).collect();
        let packing = Packing::Filter {
            source: WeightLayout::OutInSpatial,
            out: 2,
            input: 3,
            window: [1, 2],
            padded: 4,
        };
        let to = arranged(&from, &[2, 3, 1, 2], &packing);
        assert_eq!(to, [1, 3, 5, 0, 2, 4, 6, 0, 7, 9, 11, 0, 8, 10, 12, 0]);
    }
}
