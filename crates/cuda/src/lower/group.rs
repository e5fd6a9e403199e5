//! Which layers become one step: attention, layer normalisation, products with what follows them, products that share an
//! operand, and regions of element-wise operators. No group crosses a segment edge.

use super::expression::single;
use super::step::Activation;
use super::{Kind, Precision, attention};
use graph::{Binary, DType, Function, Graph, Op, ReduceKind, Segment, Unary, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Layers that become one step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Group {
    /// `softmax(scale · q k + mask) v`; `k` is `[…, d, n]` as the product reads it.
    Attention { q: ValueId, k: ValueId, v: ValueId, mask: Option<ValueId>, scale: f32, out: ValueId },
    /// A normalisation of the last axis.
    LayerNorm { x: ValueId, affine: Option<(ValueId, ValueId)>, epsilon: f32, relu: bool, out: ValueId },
    /// A convolution or product with its epilogue.
    Linear(Linear),
    /// Products of one operand with several weights.
    Merged(Vec<Linear>),
    /// Element-wise layers with one exit.
    Pointwise { layers: Vec<usize>, out: ValueId },
    /// A reduction, multiplied by a constant.
    Reduce { layer: usize, scale: f32, out: ValueId },
    /// One layer.
    Single(usize),
}

/// A convolution or product and what follows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Linear {
    pub(crate) layer: usize,
    pub(crate) bias: Option<ValueId>,
    pub(crate) residual: Option<ValueId>,
    pub(crate) activation: Activation,
    pub(crate) out: ValueId,
}

/// Most operands of an element-wise region.
const LEAVES_MAX: usize = 12;
/// Most layers of an element-wise region.
const REGION_MAX: usize = 40;
/// Most layers between products that are merged.
const MERGE_SPAN: usize = 40;

/// Groups in an order in which they can run.
pub(crate) fn plan(graph: &Graph, segments: &[Segment], precision: Precision) -> Vec<(usize, Group)> {
    let mut planner = Planner {
        graph,
        precision,
        consumers: graph.consumers(),
        producers: graph.producers(),
        outputs: graph.outputs.iter().copied().collect(),
        segment_of: vec![0; graph.layers.len()],
        taken: vec![false; graph.layers.len()],
        groups: BTreeMap::new(),
    };
    for (number, segment) in segments.iter().enumerate() {
        planner.segment_of[segment.layers.clone()].fill(number);
    }
    planner.run();
    planner.groups.into_iter().map(|(at, group)| (planner.segment_of[at], group)).collect()
}

struct Planner<'g> {
    graph: &'g Graph,
    precision: Precision,
    consumers: Vec<Vec<usize>>,
    producers: Vec<Option<usize>>,
    outputs: BTreeSet<ValueId>,
    segment_of: Vec<usize>,
    taken: Vec<bool>,
    /// By the layer at whose place they run.
    groups: BTreeMap<usize, Group>,
}

/// The number of a constant of one element.
pub(crate) fn scalar(graph: &Graph, id: ValueId) -> Option<f64> {
    let value = graph.value(id);
    let constant = value.constant.as_ref()?;
    if value.elements() != 1 {
        return None;
    }
    let bytes = constant.as_bytes();
    let word = |n: usize| bytes.get(..n).map(<[u8]>::to_vec);
    match value.dtype {
        DType::F32 => Some(f64::from(f32::from_le_bytes(word(4)?.try_into().ok()?))),
        DType::F64 => Some(f64::from_le_bytes(word(8)?.try_into().ok()?)),
        #[expect(clippy::cast_precision_loss, reason = "the literal is checked to be exact below 2^53")]
        DType::I64 => Some(i64::from_le_bytes(word(8)?.try_into().ok()?))
            .filter(|v| v.unsigned_abs() < 1 << 53)
            .map(|v| v as f64),
        DType::I32 => Some(f64::from(i32::from_le_bytes(word(4)?.try_into().ok()?))),
        DType::I8 => Some(f64::from(bytes.first()?.cast_signed())),
        DType::U8 | DType::Bool => Some(f64::from(*bytes.first()?)),
        _ => None,
    }
}

/// Whether each element of the result depends on one element of each operand.
pub(crate) const fn is_element_wise(op: &Op) -> bool {
    matches!(op, Op::Unary(_) | Op::Binary(_) | Op::Affine { .. } | Op::Select | Op::Cast(_))
}

impl Planner<'_> {
    fn run(&mut self) {
        let layers = 0..self.graph.layers.len();
        for at in layers.clone() {
            if matches!(self.graph.layers[at].op, Op::Softmax { .. }) {
                self.attention(at);
            }
        }
        for at in layers.clone() {
            if !self.taken[at] && matches!(self.graph.layers[at].op, Op::Reduce { .. }) {
                self.layer_norm(at);
            }
        }
        let mut linears = Vec::new();
        for at in layers.clone() {
            if !self.taken[at] && matches!(self.graph.layers[at].op, Op::Conv(_) | Op::EinSum(_)) {
                linears.push(self.linear(at));
            }
        }
        self.merge(linears);
        for at in layers.clone() {
            if !self.taken[at] {
                self.mean(at);
            }
        }
        for at in layers.clone().rev() {
            if !self.taken[at] && is_element_wise(&self.graph.layers[at].op) {
                self.region(at);
            }
        }
        for at in layers {
            if !self.taken[at] {
                self.single(at);
            }
        }
    }

    fn output(&self, layer: usize) -> ValueId {
        self.graph.layers[layer].outputs[0]
    }

    fn same_segment(&self, a: usize, b: usize) -> bool {
        self.segment_of[a] == self.segment_of[b]
    }

    /// The only layer that reads `value`, when it is free and in the same segment as `of`.
    fn reader(&self, value: ValueId, of: usize) -> Option<usize> {
        match self.consumers[value.index()].as_slice() {
            [reader]
                if !self.outputs.contains(&value)
                    && !self.taken[*reader]
                    && self.same_segment(*reader, of) =>
            {
                Some(*reader)
            }
            _ => None,
        }
    }

    /// The free layer that writes `value`, when nobody but `reader` reads it.
    fn writer(&self, value: ValueId, reader: usize) -> Option<usize> {
        let writer = self.producers[value.index()]?;
        (self.reader(value, reader) == Some(reader)
            && !self.taken[writer]
            && self.same_segment(writer, reader))
        .then_some(writer)
    }

    fn claim(&mut self, at: usize, layers: &[usize], group: Group) {
        for layer in layers {
            self.taken[*layer] = true;
        }
        self.groups.insert(at, group);
    }

    /// The operand of a two-operand layer that is not `value`.
    fn other(&self, layer: usize, value: ValueId) -> Option<ValueId> {
        match self.graph.layers[layer].inputs.as_slice() {
            [a, b] if *a == value && *b != value => Some(*b),
            [a, b] if *b == value && *a != value => Some(*a),
            _ => None,
        }
    }

    fn attention(&mut self, softmax: usize) {
        let graph = self.graph;
        let rank = graph.value(self.output(softmax)).shape.len();
        if graph.layers[softmax].op != (Op::Softmax { axes: vec![rank - 1], log: false }) || rank != 4 {
            return;
        }
        let (mut layers, mut scale, mut mask) = (vec![softmax], 1.0, None);
        let mut value = graph.layers[softmax].inputs[0];
        let mut reader = softmax;
        let product = loop {
            let Some(writer) = self.writer(value, reader) else { return };
            layers.push(writer);
            let layer = &graph.layers[writer];
            match (&layer.op, layer.inputs.as_slice()) {
                (Op::EinSum(_), _) => break writer,
                (Op::Binary(Binary::Mul | Binary::Div), [a, b]) if scalar(graph, *b).is_some() => {
                    let by = scalar(graph, *b).unwrap_or(1.0);
                    scale *= if layer.op == Op::Binary(Binary::Div) { 1.0 / by } else { by };
                    value = *a;
                }
                (Op::Binary(Binary::Add), [a, b]) if mask.is_none() && (scale - 1.0).abs() < f64::EPSILON => {
                    let comes = |id: &ValueId| {
                        let writer = self.writer(*id, writer);
                        writer.is_some_and(|at| {
                            matches!(
                                graph.layers[at].op,
                                Op::EinSum(_) | Op::Binary(Binary::Mul | Binary::Div)
                            )
                        }) && graph.value(*id).shape == graph.value(self.output(softmax)).shape
                    };
                    let Some(scores) = [a, b].into_iter().find(|id| comes(id)) else { return };
                    mask = Some(if scores == a { *b } else { *a });
                    value = *scores;
                }
                _ => return,
            }
            reader = writer;
        };
        let Some(second) = self.reader(self.output(softmax), softmax) else { return };
        layers.push(second);
        let (Op::EinSum(scores), Op::EinSum(mix)) = (&graph.layers[product].op, &graph.layers[second].op)
        else {
            return;
        };
        let plain = ["abmk".to_owned(), "abkn".to_owned()];
        let fits =
            |sum: &graph::EinSum| sum.inputs == plain && sum.output == "abmn" && sum.quantized.is_none();
        let [q, k] = graph.layers[product].inputs[..] else { return };
        let [p, v] = graph.layers[second].inputs[..] else { return };
        let head = graph.value(q).shape[3];
        let kind = self.precision.kind();
        let usable = fits(scores)
            && fits(mix)
            && p == self.output(softmax)
            && self.precision != Precision::Fp32
            && attention::supports(kind, head)
            && graph.value(v).shape[3] == head
            && [q, k, v]
                .iter()
                .all(|id| graph.constant(*id).is_none() && graph.value(*id).dtype == DType::F32)
            && graph.value(q).shape[..2] == graph.value(v).shape[..2];
        if usable {
            let out = self.output(second);
            let group = Group::Attention { q, k, v, mask, scale: single(scale), out };
            self.claim(second, &layers, group);
        }
    }

    /// A layer that joins `value` with a constant of one element; gives the layer and the constant.
    fn scaled(&self, value: ValueId, of: usize, kind: Binary) -> Option<(usize, f64)> {
        let reader = self.reader(value, of)?;
        let layer = &self.graph.layers[reader];
        let by = scalar(self.graph, self.other(reader, value)?)?;
        let ordered = layer.inputs[0] == value || kind != Binary::Div;
        (layer.op == Op::Binary(kind) && ordered).then_some((reader, by))
    }

    fn reader_is(&self, value: ValueId, of: usize, op: &Op) -> Option<usize> {
        self.reader(value, of).filter(|reader| self.graph.layers[*reader].op == *op)
    }

    fn layer_norm(&mut self, first: usize) -> Option<()> {
        let graph = self.graph;
        let x = graph.layers[first].inputs[0];
        let shape = &graph.value(x).shape;
        let last = shape.len().checked_sub(1)?;
        let sum = Op::Reduce { kind: ReduceKind::Sum, axes: vec![last] };
        #[expect(clippy::cast_precision_loss, reason = "a row is far shorter than 2^53")]
        let length = shape[last] as f64;
        if graph.layers[first].op != sum || graph.value(x).dtype != DType::F32 {
            return None;
        }
        let over = |(at, by): (usize, f64)| ((by - length).abs() < 0.5).then_some(at);
        let mean = over(self.scaled(self.output(first), first, Binary::Div)?)?;
        let centred = self.reader_is(self.output(mean), mean, &Op::Binary(Binary::Sub))?;
        if graph.layers[centred].inputs != [x, self.output(mean)] {
            return None;
        }
        let difference = self.output(centred);
        let [square, product] = self.consumers[difference.index()][..] else { return None };
        if graph.layers[square].op != Op::Unary(Unary::Plain(Function::Square))
            || graph.layers[product].op != Op::Binary(Binary::Mul)
        {
            return None;
        }
        let total = self.reader_is(self.output(square), square, &sum)?;
        let variance = over(self.scaled(self.output(total), total, Binary::Div)?)?;
        let (shifted, epsilon) = self.scaled(self.output(variance), variance, Binary::Add)?;
        let root =
            self.reader_is(self.output(shifted), shifted, &Op::Unary(Unary::Plain(Function::Rsqrt)))?;
        if self.reader(self.output(root), root)? != product
            || self.outputs.contains(&difference)
            || ![centred, square, product].iter().all(|at| self.same_segment(*at, first))
        {
            return None;
        }
        let mut layers = vec![first, mean, centred, square, total, variance, shifted, root, product];
        let (mut out, mut affine, mut relu) = (self.output(product), None, false);
        if let Some(reader) = self.reader(out, product)
            && let Op::Affine { axis, relu: rectified } = graph.layers[reader].op
            && axis == last
        {
            affine = Some((graph.layers[reader].inputs[1], graph.layers[reader].inputs[2]));
            relu = rectified;
            layers.push(reader);
            out = self.output(reader);
        }
        let at = *layers.iter().max()?;
        self.claim(at, &layers, Group::LayerNorm { x, affine, epsilon: single(epsilon), relu, out });
        Some(())
    }

    /// Whether `id` is a constant with one element per index of `axis` and none of any other.
    fn is_vector(&self, id: ValueId, axis: usize, length: usize) -> bool {
        let value = self.graph.value(id);
        value.constant.is_some()
            && value.dtype == DType::F32
            && value.shape.iter().enumerate().all(|(at, size)| *size == if at == axis { length } else { 1 })
    }

    fn linear(&mut self, at: usize) -> Linear {
        let graph = self.graph;
        let layer = &graph.layers[at];
        let mut linear = Linear {
            layer: at,
            bias: None,
            residual: None,
            activation: Activation::None,
            out: self.output(at),
        };
        let real = graph.value(linear.out).dtype == DType::F32;
        let (weighted, channel) = match &layer.op {
            Op::Conv(conv) => (true, conv.window.layout.channel_axis(graph.value(linear.out).shape.len())),
            Op::EinSum(sum) => {
                let rows =
                    sum.inputs.len() == 2 && sum.output.ends_with(|last| !sum.inputs[0].contains(last));
                let weighted = graph.constant(*layer.inputs.last().unwrap_or(&linear.out)).is_some();
                (weighted && rows, graph.value(linear.out).shape.len().saturating_sub(1))
            }
            _ => (false, 0),
        };
        let mut layers = vec![at];
        loop {
            if !(weighted && real) {
                break;
            }
            if matches!(layer.op, Op::EinSum(_))
                && linear.residual.is_none()
                && linear.activation == Activation::None
                && let Some((inner, out)) = self.gelu(linear.out, at)
            {
                layers.extend(inner);
                linear.activation = Activation::GeluTanh;
                linear.out = out;
                break;
            }
            let Some(reader) = self.reader(linear.out, at) else { break };
            if !self.follows(&mut linear, reader, channel) {
                break;
            }
            linear.out = self.output(reader);
            layers.push(reader);
        }
        for layer in &layers {
            self.taken[*layer] = true;
        }
        linear
    }

    /// Takes a layer that reads a product into its epilogue, when it fits there: a bias, then a residual, then an activation.
    fn follows(&self, linear: &mut Linear, reader: usize, channel: usize) -> bool {
        let graph = self.graph;
        let shape = &graph.value(linear.out).shape;
        let product = matches!(graph.layers[linear.layer].op, Op::EinSum(_));
        let bare = linear.activation == Activation::None;
        match (&graph.layers[reader].op, self.other(reader, linear.out)) {
            (Op::Binary(Binary::Add), Some(other))
                if bare
                    && product
                    && linear.bias.is_none()
                    && linear.residual.is_none()
                    && self.is_vector(other, channel, shape[channel]) =>
            {
                linear.bias = Some(other);
            }
            (Op::Binary(Binary::Add), Some(other))
                if bare
                    && linear.residual.is_none()
                    && graph.constant(other).is_none()
                    && graph.value(other).shape == *shape =>
            {
                linear.residual = Some(other);
            }
            (Op::Unary(Unary::Plain(Function::Relu)), _) if bare => linear.activation = Activation::Relu,
            (Op::Unary(Unary::Plain(Function::GeluTanh)), _) if bare && linear.residual.is_none() => {
                linear.activation = Activation::GeluTanh;
            }
            (Op::Binary(Binary::Min), Some(other)) if linear.activation == Activation::Relu && !product => {
                let Some(most) = scalar(graph, other).filter(|most| *most > 0.0) else { return false };
                linear.activation = Activation::Clipped(single(most));
            }
            _ => return false,
        }
        true
    }

    /// The layers of a Gaussian error linear unit of `value` and its result, where the library's unit may stand for it: by
    /// the hyperbolic tangent in every precision but single, by the error function where both round to the same half.
    fn gelu(&self, value: ValueId, of: usize) -> Option<(Vec<usize>, ValueId)> {
        if self.outputs.contains(&value) || self.precision == Precision::Fp32 {
            return None;
        }
        let readers = self.consumers[value.index()].clone();
        if !readers.iter().all(|at| !self.taken[*at] && self.same_segment(*at, of)) {
            return None;
        }
        let near = |found: f64, wanted: f64| (found - wanted).abs() < 1e-4 * wanted;
        let joined = |at: usize, kind: Binary, wanted: f64| {
            let layer = &self.graph.layers[at];
            let by = self.other(at, value).and_then(|other| scalar(self.graph, other));
            layer.op == Op::Binary(kind) && by.is_some_and(|by| near(by, wanted))
        };
        let then = |at: usize, kind: Binary, wanted: f64| {
            self.scaled(self.output(at), at, kind).filter(|(_, by)| near(*by, wanted)).map(|(at, _)| at)
        };
        let called = |at: usize, function: Function| {
            self.reader_is(self.output(at), at, &Op::Unary(Unary::Plain(function)))
        };
        match readers.as_slice() {
            [a, b] if matches!(self.precision, Precision::Fp16 | Precision::Bf16) => {
                let half = std::f64::consts::FRAC_1_SQRT_2;
                let inner =
                    |at: &usize| joined(*at, Binary::Div, half.recip()) || joined(*at, Binary::Mul, half);
                let (inside, product) = if inner(a) { (*a, *b) } else { (*b, *a) };
                if !inner(&inside) {
                    return None;
                }
                let erf = called(inside, Function::Erf)?;
                let sum = then(erf, Binary::Add, 1.0)?;
                let joins = self.reader(self.output(sum), sum)? == product
                    && self.graph.layers[product].op == Op::Binary(Binary::Mul)
                    && self.other(product, value) == Some(self.output(sum));
                let halved = then(product, Binary::Mul, 0.5).filter(|_| joins)?;
                Some((vec![inside, erf, sum, product, halved], self.output(halved)))
            }
            [_, _, _] => {
                let halved = *readers.iter().find(|at| joined(**at, Binary::Mul, 0.5))?;
                let cube = *readers.iter().find(|at| joined(**at, Binary::Pow, 3.0))?;
                let scaled = then(cube, Binary::Mul, 0.044_715)?;
                let sum = *readers.iter().find(|at| **at != halved && **at != cube)?;
                let adds = self.graph.layers[sum].op == Op::Binary(Binary::Add)
                    && self.other(sum, value) == Some(self.output(scaled))
                    && self.reader(self.output(scaled), scaled) == Some(sum);
                let inside = then(sum, Binary::Mul, 0.797_884_56).filter(|_| adds)?;
                let tanh = called(inside, Function::Tanh)?;
                let one = then(tanh, Binary::Add, 1.0)?;
                let product = self.reader(self.output(one), one)?;
                let joins = self.graph.layers[product].op == Op::Binary(Binary::Mul)
                    && self.other(product, self.output(one)) == Some(self.output(halved))
                    && self.reader(self.output(halved), halved) == Some(product);
                let layers = vec![halved, cube, scaled, sum, inside, tanh, one, product];
                joins.then(|| (layers, self.output(product)))
            }
            _ => None,
        }
    }

    /// The layer at whose place a product and its epilogue run: the last.
    fn place(&self, linear: &Linear) -> usize {
        self.producers[linear.out.index()].unwrap_or(linear.layer)
    }

    fn merge(&mut self, linears: Vec<Linear>) {
        let mut families: BTreeMap<(ValueId, usize, bool), Vec<Linear>> = BTreeMap::new();
        for linear in linears {
            let layer = &self.graph.layers[linear.layer];
            let mergeable = match &layer.op {
                Op::EinSum(sum) => {
                    sum.inputs.get(1).is_some_and(|axes| axes == "kn" || axes == "nk")
                        && sum.output.ends_with("mn")
                        && self.graph.constant(layer.inputs[1]).is_some()
                        && linear.residual.is_none()
                        && linear.activation == Activation::None
                }
                _ => false,
            };
            if mergeable {
                let key = (layer.inputs[0], self.segment_of[linear.layer], linear.bias.is_some());
                families.entry(key).or_default().push(linear);
            } else {
                self.groups.insert(self.place(&linear), Group::Linear(linear));
            }
        }
        for family in families.into_values() {
            let near = family[family.len() - 1].layer - family[0].layer <= MERGE_SPAN;
            let same = family
                .iter()
                .all(|one| self.graph.layers[one.layer].op == self.graph.layers[family[0].layer].op);
            if family.len() > 1 && near && same {
                self.groups.insert(family[0].layer, Group::Merged(family));
            } else {
                for linear in family {
                    self.groups.insert(self.place(&linear), Group::Linear(linear));
                }
            }
        }
    }

    /// Grows an element-wise region backwards from its exit.
    fn region(&mut self, exit: usize) {
        let graph = self.graph;
        let shape = &graph.value(self.output(exit)).shape;
        let mut layers = BTreeSet::from([exit]);
        loop {
            let leaves: BTreeSet<ValueId> =
                layers.iter().flat_map(|at| graph.layers[*at].inputs.iter().copied()).collect();
            let next = leaves.iter().rev().find_map(|leaf| {
                let writer = self.producers[leaf.index()]?;
                let joins = !layers.contains(&writer)
                    && !self.taken[writer]
                    && is_element_wise(&graph.layers[writer].op)
                    && self.same_segment(writer, exit)
                    && !self.outputs.contains(leaf)
                    && graph.value(*leaf).shape == *shape
                    && self.consumers[leaf.index()].iter().all(|reader| layers.contains(reader));
                joins.then_some(writer)
            });
            let Some(writer) =
                next.filter(|_| layers.len() < REGION_MAX && leaves.len() < LEAVES_MAX + layers.len())
            else {
                break;
            };
            layers.insert(writer);
        }
        let layers: Vec<usize> = layers.into_iter().collect();
        let out = self.output(exit);
        self.claim(exit, &layers, Group::Pointwise { layers: layers.clone(), out });
    }

    /// A sum that a constant scales afterwards: in one kernel, since a sum of squares may be too large for half precision.
    fn mean(&mut self, at: usize) {
        let summed = matches!(self.graph.layers[at].op, Op::Reduce { kind: ReduceKind::Sum, .. });
        let divided = self.scaled(self.output(at), at, Binary::Div).map(|(reader, by)| (reader, 1.0 / by));
        let scaled = divided.or_else(|| self.scaled(self.output(at), at, Binary::Mul));
        if let Some((reader, by)) = scaled.filter(|_| summed) {
            let group = Group::Reduce { layer: at, scale: single(by), out: self.output(reader) };
            self.claim(reader, &[at, reader], group);
        }
    }

    fn single(&mut self, at: usize) {
        self.claim(at, &[at], Group::Single(at));
    }
}

/// Whether values of this type change with the precision.
pub(crate) const fn kind_of(dtype: DType, precision: Precision) -> Kind {
    match dtype {
        DType::F32 => precision.kind(),
        other => Kind::exact(other),
    }
}
