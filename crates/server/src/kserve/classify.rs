//! The classification extension: the best classes of a tensor as `value:index:label` text.

use graph::{DType, HostTensor};
use std::cmp::Ordering;

/// For each of `rows` equal parts of `tensor`, its `count` largest elements (fewer when it has fewer), best first.
///
/// Floats are written with six decimals, as Triton does; NaN counts as smaller than everything, equals keep their order.
pub(super) fn classify(
    tensor: &HostTensor,
    rows: usize,
    count: usize,
    labels: &[String],
) -> Vec<Vec<String>> {
    let size = tensor.dtype().size();
    let elements = tensor.data().len() / size;
    let classes = elements / rows.max(1);
    if classes == 0 {
        return vec![Vec::new(); rows];
    }
    tensor.data().chunks_exact(classes * size).map(|row| best(row, tensor.dtype(), count, labels)).collect()
}

fn best(row: &[u8], dtype: DType, count: usize, labels: &[String]) -> Vec<String> {
    let mut ranked: Vec<(usize, &[u8])> = row.chunks_exact(dtype.size()).enumerate().collect();
    let order = |(left_at, left): &(usize, &[u8]), (right_at, right): &(usize, &[u8])| {
        compare(dtype, right, left).then(left_at.cmp(right_at))
    };
    let count = count.min(ranked.len());
    if count < ranked.len() {
        ranked.select_nth_unstable_by(count, order);
        ranked.truncate(count);
    }
    ranked.sort_unstable_by(order);
    ranked
        .into_iter()
        .map(|(at, bytes)| {
            let value = text(dtype, bytes);
            labels.get(at).map_or_else(|| format!("{value}:{at}"), |label| format!("{value}:{at}:{label}"))
        })
        .collect()
}

/// One element, wide enough to compare and print exactly.
enum Element {
    Whole(i128),
    Float(f64),
}

fn element(dtype: DType, bytes: &[u8]) -> Element {
    fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes.try_into().expect("an element is as long as its type")
    }
    match dtype {
        DType::Bool | DType::U8 => Element::Whole(bytes[0].into()),
        DType::U16 => Element::Whole(u16::from_le_bytes(fixed(bytes)).into()),
        DType::U32 => Element::Whole(u32::from_le_bytes(fixed(bytes)).into()),
        DType::U64 => Element::Whole(u64::from_le_bytes(fixed(bytes)).into()),
        DType::I8 => Element::Whole(i8::from_le_bytes(fixed(bytes)).into()),
        DType::I16 => Element::Whole(i16::from_le_bytes(fixed(bytes)).into()),
        DType::I32 => Element::Whole(i32::from_le_bytes(fixed(bytes)).into()),
        DType::I64 => Element::Whole(i64::from_le_bytes(fixed(bytes)).into()),
        DType::F16 => Element::Float(half::f16::from_le_bytes(fixed(bytes)).to_f64()),
        DType::F32 => Element::Float(f32::from_le_bytes(fixed(bytes)).into()),
        DType::F64 => Element::Float(f64::from_le_bytes(fixed(bytes))),
    }
}

fn compare(dtype: DType, left: &[u8], right: &[u8]) -> Ordering {
    match (element(dtype, left), element(dtype, right)) {
        (Element::Whole(left), Element::Whole(right)) => left.cmp(&right),
        (Element::Float(left), Element::Float(right)) => match (left.is_nan(), right.is_nan()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => left.partial_cmp(&right).unwrap_or(Ordering::Equal),
        },
        _ => unreachable!("elements of one tensor have one type"),
    }
}

fn text(dtype: DType, bytes: &[u8]) -> String {
    match element(dtype, bytes) {
        Element::Whole(value) => value.to_string(),
        Element::Float(value) => format!("{value:.6}"),
    }
}
