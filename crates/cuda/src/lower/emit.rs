//! Emits the steps of each group, in order, and says where values lie.

use super::group::{self, Group, kind_of};
use super::pointwise::{Generated, Pointwise};
use super::step::{Kernel, Launch, Lowered, Operand, Packing, Step, Weight};
use super::view::{channels_last, strides_in_order};
use super::{Kind, Place, Precision, View};
use graph::{Graph, Op, Segment, ValueId};
use std::collections::{BTreeMap, HashMap};

/// Why a group could not be emitted although its operators are known.
pub(crate) type Refusal = String;

pub(super) struct Emitter<'g> {
    pub(super) graph: &'g Graph,
    pub(super) precision: Precision,
    views: Vec<Option<View>>,
    /// Where values must be written because a join reads them there.
    placed: BTreeMap<ValueId, View>,
    out: Lowered,
    segment: usize,
    kernels: HashMap<String, usize>,
    weights: HashMap<String, usize>,
}

/// Lowers `graph`, cut into `segments`. Outputs have the file's types, but those that `precision` computes in half also leave
/// so with `half_outputs`.
///
/// # Errors
/// When strides meet that no kernel takes; the layer is named.
pub(crate) fn lower(
    graph: &Graph,
    segments: &[Segment],
    precision: Precision,
    half_outputs: bool,
) -> Result<Lowered, Refusal> {
    let out = Lowered {
        segments: vec![Vec::new(); segments.len().max(1)],
        buffers: Vec::new(),
        weights: Vec::new(),
        weight_segments: Vec::new(),
        kernels: Vec::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
    };
    let mut emitter = Emitter {
        graph,
        precision,
        views: vec![None; graph.values.len()],
        placed: BTreeMap::new(),
        out,
        segment: 0,
        kernels: HashMap::new(),
        weights: HashMap::new(),
    };
    for id in &graph.inputs {
        let value = graph.value(*id);
        let kind = Kind::exact(value.dtype);
        let buffer = emitter.buffer(value.shape.iter().product::<usize>() * kind.size());
        let view = View::dense(Place::Buffer(buffer), kind, &value.shape);
        emitter.out.inputs.push(view.clone());
        emitter.views[id.index()] = Some(view);
    }
    emitter.place_joins();
    for (segment, group) in group::plan(graph, segments, precision) {
        emitter.segment = segment;
        emitter.group(&group)?;
    }
    emitter.segment = segments.len().max(1) - 1;
    emitter.finish_outputs(half_outputs)?;
    Ok(emitter.out)
}

impl Emitter<'_> {
    fn group(&mut self, group: &Group) -> Result<(), Refusal> {
        match group {
            Group::Attention { q, k, v, mask, scale, out } => {
                self.attention([*q, *k, *v], *mask, *scale, *out)
            }
            Group::LayerNorm { x, affine, epsilon, relu, out } => {
                self.layer_norm(*x, *affine, *epsilon, *relu, *out)
            }
            Group::Linear(linear) => self.linear(linear),
            Group::Merged(linears) => self.merged(linears),
            Group::Pointwise { layers, out } => self.region(layers, *out),
            Group::Reduce { layer, scale, out } => self.reduction(*layer, Some(*scale), *out),
            Group::Single(layer) => self.single(*layer),
        }
    }

    // ---- what emitters build from

    pub(super) fn kind(&self, id: ValueId) -> Kind {
        kind_of(self.graph.value(id).dtype, self.precision)
    }

    pub(super) fn buffer(&mut self, bytes: usize) -> usize {
        self.out.buffers.push(bytes);
        self.out.buffers.len() - 1
    }

    /// A buffer of its own for a tensor whose dimensions lie in this order.
    pub(super) fn fresh(&mut self, kind: Kind, shape: &[usize], order: &[usize]) -> View {
        let buffer = self.buffer(shape.iter().product::<usize>() * kind.size());
        let strides = strides_in_order(shape, order);
        View { place: Place::Buffer(buffer), kind, offset: 0, shape: shape.to_vec(), strides }
    }

    /// Where `id` is to be written: where a join wants it, or in a buffer of its own in this order.
    pub(super) fn allocate(&mut self, id: ValueId, order: &[usize]) -> View {
        if let Some(view) = self.placed.get(&id) {
            return view.clone();
        }
        let (kind, shape) = (self.kind(id), self.graph.value(id).shape.clone());
        self.fresh(kind, &shape, order)
    }

    pub(super) fn set(&mut self, id: ValueId, view: View) {
        self.views[id.index()] = Some(view);
    }

    /// Where `id` lies; constants are packed as they are.
    pub(super) fn view(&mut self, id: ValueId) -> Result<View, Refusal> {
        if let Some(view) = &self.views[id.index()] {
            return Ok(view.clone());
        }
        if self.graph.constant(id).is_none() {
            return Err(format!("value {} is read before it is written", self.graph.value(id).name));
        }
        let kind = self.kind(id);
        let view = self.constant(id, kind);
        self.set(id, view.clone());
        Ok(view)
    }

    /// A constant as a weight of this type; equal rows of a batch are kept once.
    pub(super) fn constant(&mut self, id: ValueId, kind: Kind) -> View {
        let value = self.graph.value(id);
        let shape = value.shape.clone();
        if let Some(rows) = equal_rows(self.graph, id) {
            let elements = shape[1..].iter().product();
            let place = self.weight(vec![id], Packing::FirstRow { rows }, kind, elements);
            let mut view = View::dense(place, kind, &shape);
            view.strides[0] = 0;
            return view;
        }
        let place = self.weight(vec![id], Packing::Plain, kind, shape.iter().product());
        View::dense(place, kind, &shape)
    }

    /// A packed weight, shared when the same was packed before.
    pub(super) fn weight(
        &mut self,
        parts: Vec<ValueId>,
        packing: Packing,
        kind: Kind,
        elements: usize,
    ) -> Place {
        let weight = Weight { parts, packing, kind, elements };
        let key = format!("{weight:?}");
        let segment = self.segment;
        let number = *self.weights.entry(key).or_insert_with(|| {
            self.out.weights.push(weight);
            self.out.weight_segments.push(segment);
            self.out.weights.len() - 1
        });
        Place::Weight(number)
    }

    pub(super) fn kernel(&mut self, source: &str) -> usize {
        if let Some(number) = self.kernels.get(source) {
            return *number;
        }
        let name = format!("k{:016x}", fingerprint(source.as_bytes()));
        self.out.kernels.push(Kernel { name: name.clone(), source: source.replace("NAME", &name) });
        self.kernels.insert(source.to_owned(), self.out.kernels.len() - 1);
        self.out.kernels.len() - 1
    }

    pub(super) fn launch_of(&mut self, generated: &Generated, arguments: Vec<Operand>) -> Launch {
        let kernel = self.kernel(&generated.source);
        Launch { kernel, grid: generated.grid, block: generated.block, arguments }
    }

    pub(super) fn push(&mut self, step: Step) {
        self.out.segments[self.segment].push(step);
    }

    pub(super) fn launch(&mut self, generated: &Generated, views: &[&View]) {
        let launch = self.launch_of(generated, views.iter().map(|view| view.operand()).collect());
        self.push(Step::Kernel(launch));
    }

    /// Copies `from` into `out`, converting.
    pub(super) fn copy(&mut self, from: &View, out: &View) {
        let generated = Pointwise::copy(from.clone(), out.clone()).generate();
        self.launch(&generated, &[from, out]);
    }

    /// `view` itself when `fits`, else a dense copy in this order and type.
    pub(super) fn as_needed(
        &mut self,
        view: View,
        kind: Kind,
        order: &[usize],
        fits: impl Fn(&View) -> bool,
    ) -> View {
        if view.kind == kind && fits(&view) {
            return view;
        }
        let copy = self.fresh(kind, &view.shape, order);
        self.copy(&view, &copy);
        copy
    }

    // ---- joins and outputs

    /// Decides where the operands of joins along channels are written. The widest join of a chain comes last, so later
    /// joins go first; one whose operands already lie in a row in a later one's buffer needs nothing.
    fn place_joins(&mut self) {
        let producers = self.graph.producers();
        for layer in self.graph.layers.iter().rev() {
            let Op::Concat { axis: 1 } = layer.op else { continue };
            let out = layer.outputs[0];
            let shape = self.graph.value(out).shape.clone();
            if shape.len() != 4 {
                continue;
            }
            let whole = match self.prefix(&layer.inputs, &shape) {
                Some(view) => view,
                None => self.allocate(out, &channels_last(4)),
            };
            self.placed.insert(out, whole.clone());
            let mut start = 0;
            for id in &layer.inputs {
                let length = self.graph.value(*id).shape[1];
                let computed = producers[id.index()].is_some_and(|at| !self.graph.layers[at].op.is_view());
                if computed && !self.graph.outputs.contains(id) {
                    self.placed.entry(*id).or_insert_with(|| whole.sliced(1, start, 1, length));
                }
                start += length;
            }
        }
    }

    /// The part of a later join's buffer that holds exactly these operands, when there is one.
    fn prefix(&self, inputs: &[ValueId], shape: &[usize]) -> Option<View> {
        let first = self.placed.get(inputs.first()?)?;
        let mut at = first.offset;
        for id in inputs {
            let view = self.placed.get(id)?;
            if view.place != first.place || view.offset != at || view.strides != first.strides {
                return None;
            }
            at += view.shape[1];
        }
        Some(View { shape: shape.to_vec(), ..first.clone() })
    }

    /// Copies outputs that do not lie dense in the type they leave in to buffers that do.
    fn finish_outputs(&mut self, half: bool) -> Result<(), Refusal> {
        for id in self.graph.outputs.clone() {
            let view = self.view(id)?;
            let value = self.graph.value(id);
            let kind = Kind::exact(self.precision.delivers(value.dtype, half));
            let own = matches!(view.place, Place::Buffer(_)) && view.offset == 0 && view.is_row_major();
            let input = self.graph.inputs.contains(&id);
            let view = if own && view.kind == kind && !input {
                view
            } else {
                let order: Vec<usize> = (0..value.shape.len()).collect();
                let out = self.fresh(kind, &value.shape, &order);
                self.copy(&view, &out);
                out
            };
            self.out.outputs.push(view);
        }
        Ok(())
    }
}

/// Rows of a constant whose leading axis is the batch and whose rows are all the same.
fn equal_rows(graph: &Graph, id: ValueId) -> Option<usize> {
    let value = graph.value(id);
    let rows = *value.shape.first()?;
    let bytes = graph.constant(id)?.as_bytes();
    if rows != graph.batch || rows < 2 || value.shape.len() < 2 || bytes.is_empty() {
        return None;
    }
    let each = bytes.len() / rows;
    let (first, rest) = bytes.split_at(each);
    rest.chunks(each).all(|row| row == first).then_some(rows)
}

/// FNV-1a over words: names kernels and caches.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
