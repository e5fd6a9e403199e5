//! Emits everything that is not a product: regions, rows, pools, moves.

use super::emit::{Emitter, Refusal};
use super::group::scalar;
use super::pointwise::Pointwise;
use super::view::channels_last;
use super::window::{Pool, Window2, pool};
use super::{Kind, View, attention, each, expression, rows};
use graph::{Binary, DType, Layout, Op, ReduceKind, Stride, Unary, ValueId, Window};
use std::collections::BTreeSet;

/// A window of at most two spatial axes as one of two.
pub(super) fn window2(window: &Window) -> Window2 {
    let two = |list: &[usize], missing: usize| match list {
        [a, b] => [*a, *b],
        [b] => [missing, *b],
        _ => [missing, missing],
    };
    Window2 {
        kernel: two(&window.kernel, 1),
        strides: two(&window.strides, 1),
        dilations: two(&window.dilations, 1),
        before: two(&window.pads_before, 0),
    }
}

/// A value as `[n, c, h, w]`, whatever its layout.
pub(super) fn as_nchw(view: &View, layout: Layout) -> View {
    let mut view = view.clone();
    if matches!(layout, Layout::UnbatchedChannelsFirst | Layout::UnbatchedChannelsLast) {
        view = view.with_axis(0);
    }
    if matches!(layout, Layout::ChannelsLast | Layout::UnbatchedChannelsLast) {
        view = view.moved(view.shape.len() - 1, 1);
    }
    while view.shape.len() < 4 {
        view = view.with_axis(2);
    }
    view
}

/// The inverse of [`as_nchw`] for a value of this rank.
pub(super) fn from_nchw(view: &View, layout: Layout, rank: usize) -> View {
    let unbatched = matches!(layout, Layout::UnbatchedChannelsFirst | Layout::UnbatchedChannelsLast);
    let mut view = view.clone();
    while view.shape.len() > rank + usize::from(unbatched) {
        view = view.without_axis(2);
    }
    if matches!(layout, Layout::ChannelsLast | Layout::UnbatchedChannelsLast) {
        view = view.moved(1, view.shape.len() - 1);
    }
    if unbatched { view.without_axis(0) } else { view }
}

impl Emitter<'_> {
    pub(super) fn attention(
        &mut self,
        [q, k, v]: [ValueId; 3],
        mask: Option<ValueId>,
        scale: f32,
        out: ValueId,
    ) -> Result<(), Refusal> {
        let kind = self.precision.kind();
        let any = |_: &View| true;
        let q = self.view(q)?;
        let q = self.as_needed(q, kind, &[0, 1, 2, 3], any);
        let k = self.view(k)?.moved(3, 2);
        let k = self.as_needed(k, kind, &[0, 1, 2, 3], any);
        let v = self.view(v)?;
        let v = self.as_needed(v, kind, &[0, 1, 2, 3], any);
        let shape = [q.shape[0], q.shape[1], q.shape[2], k.shape[2]];
        let mask = mask.map(|mask| self.view(mask)).transpose()?.map(|mask| mask.broadcast(&shape));
        // Heads side by side, as the projection that follows reads them.
        let y = self.allocate(out, &[0, 2, 1, 3]);
        let kernel = attention::Attention { q: &q, k: &k, v: &v, mask: mask.as_ref(), out: &y, scale };
        let mut views = vec![&q, &k, &v];
        views.extend(mask.as_ref());
        views.push(&y);
        self.launch(&kernel.generate(), &views);
        self.set(out, y);
        Ok(())
    }

    pub(super) fn layer_norm(
        &mut self,
        x: ValueId,
        affine: Option<(ValueId, ValueId)>,
        epsilon: f32,
        relu: bool,
        out: ValueId,
    ) -> Result<(), Refusal> {
        let view = self.view(x)?;
        let order: Vec<usize> = (0..view.shape.len()).collect();
        let last = view.shape.len() - 1;
        let kind = view.kind;
        let x = self.as_needed(view, kind, &order, |view| view.strides[last] == 1);
        let y = self.allocate(out, &order);
        let affine =
            affine.map(|(scale, shift)| (self.constant(scale, Kind::F32), self.constant(shift, Kind::F32)));
        let kernel = rows::LayerNorm {
            x: &x,
            y: &y,
            affine: affine.as_ref().map(|(scale, shift)| (scale, shift)),
            epsilon,
            relu,
        };
        let generated = kernel.generate().ok_or("a layer normalisation over a strided row")?;
        let mut views = vec![&x];
        if let Some((scale, shift)) = &affine {
            views.extend([scale, shift]);
        }
        views.push(&y);
        self.launch(&generated, &views);
        self.set(out, y);
        Ok(())
    }

    pub(super) fn reduction(
        &mut self,
        layer: usize,
        scale: Option<f32>,
        out: ValueId,
    ) -> Result<(), Refusal> {
        let layer = &self.graph.layers[layer];
        let Op::Reduce { kind, axes } = &layer.op else { return Err("not a reduction".into()) };
        let x = self.view(layer.inputs[0])?;
        let mut y = self.allocate(out, &x.order());
        if matches!(kind, ReduceKind::ArgMax { .. } | ReduceKind::ArgMin { .. }) {
            y.kind = Kind::exact(self.graph.value(out).dtype);
        }
        self.launch(&rows::reduce(*kind, &x, &y, axes, scale), &[&x, &y]);
        self.set(out, y);
        Ok(())
    }

    /// Element-wise layers with one exit, as one kernel.
    pub(super) fn region(&mut self, layers: &[usize], out: ValueId) -> Result<(), Refusal> {
        let graph = self.graph;
        let written: BTreeSet<ValueId> = layers.iter().map(|at| graph.layers[*at].outputs[0]).collect();
        let shape = graph.value(out).shape.clone();
        let mut operands: Vec<(String, View)> = Vec::new();
        let mut body = Vec::new();
        let mut order = None;
        for at in layers {
            let layer = &graph.layers[*at];
            let mut names = Vec::new();
            for (place, id) in layer.inputs.iter().enumerate() {
                let name = format!("x{}", id.0);
                if let (Some(number), false) = (scalar(graph, *id), matches!(layer.op, Op::Affine { .. })) {
                    names.push(expression::literal(self.kind(*id), number));
                    continue;
                }
                if !written.contains(id) && !operands.iter().any(|(known, _)| *known == name) {
                    let view = if graph.constant(*id).is_some() {
                        let kind =
                            if graph.value(*id).dtype == DType::F32 { Kind::F32 } else { self.kind(*id) };
                        self.constant(*id, kind)
                    } else {
                        self.view(*id)?
                    };
                    let view = match layer.op {
                        Op::Affine { axis, .. } if place > 0 => along(&view, axis, &shape),
                        _ => view.broadcast(&shape),
                    };
                    let leads = graph.constant(*id).is_none() && graph.value(*id).shape == shape;
                    if leads && order.is_none() {
                        order = Some(view.order());
                    }
                    operands.push((name.clone(), view));
                }
                names.push(name);
            }
            body.push(self.statement(*at, &names));
        }
        let order = order.unwrap_or_else(|| (0..shape.len()).collect());
        let y = self.allocate(out, &order);
        let pointwise = Pointwise { operands, body, result: format!("x{}", out.0), out: y.clone() };
        let generated = pointwise.generate();
        let mut views: Vec<&View> = pointwise.operands.iter().map(|(_, view)| view).collect();
        views.push(&y);
        self.launch(&generated, &views);
        self.set(out, y);
        Ok(())
    }

    /// The C statement of an element-wise layer.
    fn statement(&self, at: usize, names: &[String]) -> String {
        let graph = self.graph;
        let layer = &graph.layers[at];
        let out = layer.outputs[0];
        let kind = self.kind(layer.inputs[0]);
        let text = match &layer.op {
            Op::Unary(unary) => expression::unary(*unary, kind, &names[0]),
            Op::Binary(binary) => {
                let right = scalar(graph, layer.inputs[1]);
                expression::binary(*binary, kind, &names[0], &names[1], right)
            }
            Op::Affine { relu, .. } => {
                let sum = format!("({} * {} + {})", names[0], names[1], names[2]);
                if *relu { format!("relu({sum})") } else { sum }
            }
            Op::Select => format!("({} ? {} : {})", names[0], names[1], names[2]),
            Op::Cast(DType::Bool) => format!("({} != 0)", names[0]),
            _ => names[0].clone(),
        };
        let computed = self.kind(out).computed();
        // An integer type narrower than the one computed in wraps when it is cast.
        let narrow = match self.kind(out) {
            Kind::I8 | Kind::U8 | Kind::I16 | Kind::U16 | Kind::I32 | Kind::U32 => {
                format!("({})", self.kind(out).stored())
            }
            _ => String::new(),
        };
        format!("const {computed} x{} = ({computed}){narrow}({text});", out.0)
    }

    pub(super) fn single(&mut self, at: usize) -> Result<(), Refusal> {
        let graph = self.graph;
        let layer = &graph.layers[at];
        let out = layer.outputs[0];
        let refused = |why: Refusal| format!("{}: {why}", layer.name);
        match &layer.op {
            Op::Concat { axis } => return self.join(layer.inputs.clone(), *axis, out),
            Op::Reduce { .. } => return self.reduction(at, None, out),
            Op::Unary(Unary::Plain(_)) | Op::Binary(Binary::Add) => return self.region(&[at], out),
            _ => {}
        }
        let x = self.view(layer.inputs[0]).map_err(refused)?;
        let shape = graph.value(out).shape.clone();
        let view = match &layer.op {
            Op::Identity => x,
            Op::AddAxis(axis) => x.with_axis(*axis),
            Op::RemoveAxis(axis) => x.without_axis(*axis),
            Op::MoveAxis { from, to } => x.moved(*from, *to),
            Op::Slice { axis, start, end } => x.sliced(*axis, *start, 1, end - start),
            Op::StridedSlice(strides) => strided(&x, strides),
            Op::Broadcast => x.broadcast(&shape),
            Op::Reshape => match x.reshaped(&shape) {
                Some(view) => view,
                None => {
                    let order: Vec<usize> = (0..x.shape.len()).collect();
                    let (kind, from) = (x.kind, x.shape.clone());
                    let dense = self.fresh(kind, &from, &order);
                    self.copy(&x, &dense);
                    dense.reshaped(&shape).ok_or("a dense tensor takes any shape")?
                }
            },
            _ => return self.computed(at, &x),
        };
        self.set(out, view);
        Ok(())
    }

    /// Layers with a kernel of their own.
    fn computed(&mut self, at: usize, x: &View) -> Result<(), Refusal> {
        let graph = self.graph;
        let layer = &graph.layers[at];
        let out = layer.outputs[0];
        let shape = graph.value(out).shape.clone();
        let row_major: Vec<usize> = (0..shape.len()).collect();
        let y = match &layer.op {
            Op::MaxPool { window, .. } | Op::SumPool { window, .. } => return self.pool(at, x, window),
            _ => self.allocate(out, &if shape.len() == x.shape.len() { x.order() } else { row_major }),
        };
        let generated = match &layer.op {
            Op::Softmax { axes, log } => match rows::softmax(x, &y, axes, *log) {
                Some(generated) => generated,
                None => return Err(format!("{}: a softmax over axes that lie apart", layer.name)),
            },
            Op::Lrn { alpha, beta, bias, size } => each::response_norm(x, [*alpha, *beta, *bias], *size, &y),
            Op::Pad { before, fill, .. } => each::pad(x, before, fill, &y),
            Op::Tile(_) => each::tile(x, &y),
            Op::CumSum { axis, exclusive, reverse } => each::cumulative(x, *axis, *exclusive, *reverse, &y),
            Op::Gather { axis } => {
                let indices = self.view(layer.inputs[1])?;
                self.launch(&each::gather(x, &indices, *axis, &y), &[x, &indices, &y]);
                self.set(out, y);
                return Ok(());
            }
            Op::GatherElements { axis } => {
                let indices = self.view(layer.inputs[1])?;
                self.launch(&each::gather_elements(x, &indices, *axis, &y), &[x, &indices, &y]);
                self.set(out, y);
                return Ok(());
            }
            Op::Resize { interpolation, coordinates, rounding } => {
                let scales = self.scales(at);
                each::resize(x, *interpolation, *coordinates, *rounding, &scales, &y)
                    .ok_or_else(|| format!("{}: this way of resampling", layer.name))?
            }
            Op::Deconv(_) => return self.deconvolution(at, x, y),
            other => return Err(format!("{}: no kernel for {}", layer.name, other.kind())),
        };
        self.launch(&generated, &[x, &y]);
        self.set(out, y);
        Ok(())
    }

    /// Output over input lengths of a resampling: as the file gives them, or as the shapes imply.
    fn scales(&self, at: usize) -> Vec<f32> {
        let graph = self.graph;
        let layer = &graph.layers[at];
        let (old, new) = (&graph.value(layer.inputs[0]).shape, &graph.value(layer.outputs[0]).shape);
        let given = layer.inputs[1..].iter().find_map(|id| {
            let value = graph.value(*id);
            let fits = value.dtype == DType::F32 && value.shape == [old.len()];
            let bytes = graph.constant(*id).filter(|_| fits)?.as_bytes();
            Some(
                bytes
                    .chunks_exact(4)
                    .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                    .collect::<Vec<f32>>(),
            )
        });
        #[expect(clippy::cast_precision_loss, reason = "lengths are far below 2^24")]
        given.unwrap_or_else(|| old.iter().zip(new).map(|(old, new)| *new as f32 / *old as f32).collect())
    }

    fn join(&mut self, inputs: Vec<ValueId>, axis: usize, out: ValueId) -> Result<(), Refusal> {
        let shape = self.graph.value(out).shape.clone();
        let order = if shape.len() == 4 && axis == 1 { channels_last(4) } else { (0..shape.len()).collect() };
        let y = self.allocate(out, &order);
        let mut start = 0;
        for id in inputs {
            let length = self.graph.value(id).shape[axis];
            let part = y.sliced(axis, start, 1, length);
            let x = self.view(id)?;
            let there = x.place == part.place && x.offset == part.offset && x.strides == part.strides;
            if !there {
                self.copy(&x, &part);
            }
            start += length;
        }
        self.set(out, y);
        Ok(())
    }

    fn pool(&mut self, at: usize, x: &View, window: &Window) -> Result<(), Refusal> {
        let layer = &self.graph.layers[at];
        let out = layer.outputs[0];
        let rank = x.shape.len();
        let order = match (window.layout, rank) {
            (Layout::ChannelsFirst, 4) => channels_last(4),
            _ => x.order(),
        };
        let y = self.allocate(out, &order);
        let kind = match &layer.op {
            Op::SumPool { count_include_pad, normalize, .. } => {
                Pool::Sum { normalize: *normalize, count_include_pad: *count_include_pad }
            }
            _ => Pool::Max,
        };
        let (from, to) = (as_nchw(x, window.layout), as_nchw(&y, window.layout));
        let generated = pool(kind, window2(window), &from, &to);
        self.launch(&generated, &[&from, &to]);
        self.set(out, y);
        Ok(())
    }
}

/// A vector along one axis of `shape`, repeated over the others.
fn along(vector: &View, axis: usize, shape: &[usize]) -> View {
    let mut strides = vec![0; shape.len()];
    strides[axis] = if vector.elements() == 1 { 0 } else { vector.strides[vector.strides.len() - 1] };
    View { shape: shape.to_vec(), strides, ..vector.clone() }
}

fn strided(x: &View, strides: &[Stride]) -> View {
    strides
        .iter()
        .fold(x.clone(), |view, stride| view.sliced(stride.axis, stride.start, stride.step, stride.length))
}
