//! Emits convolutions and matrix products.

use super::emit::{Emitter, Refusal};
use super::group::Linear;
use super::operators::{as_nchw, from_nchw, window2};
use super::pointwise::Pointwise;
use super::step::{Activation, ConvShape, Convolution, Gemm, GemmShape, Launch, Operand, Packing, Step};
use super::view::{channels_last, signed};
use super::window::{Depthwise, activate};
use super::{Kind, Place, View, each};
use graph::{Conv, EinSum, Op, PadFill, ValueId};

/// The axes of a product by their part in it: letters of each group, outermost first.
struct Axes {
    batch: Vec<char>,
    m: Vec<char>,
    n: Vec<char>,
    k: Vec<char>,
}

impl Axes {
    fn of(sum: &EinSum) -> Self {
        let (a, b) = (&sum.inputs[0], &sum.inputs[1]);
        let output = |c: &char| sum.output.contains(*c);
        Self {
            batch: sum.output.chars().filter(|c| a.contains(*c) && b.contains(*c)).collect(),
            m: sum.output.chars().filter(|c| !b.contains(*c)).collect(),
            n: sum.output.chars().filter(|c| !a.contains(*c)).collect(),
            k: a.chars().filter(|c| !output(c)).collect(),
        }
    }
}

fn places(letters: &str, wanted: &[char]) -> Vec<usize> {
    wanted.iter().filter_map(|c| letters.chars().position(|letter| letter == *c)).collect()
}

/// A matrix as a product reads it: strides over batch, rows and columns.
fn matrix(view: &View, letters: &str, groups: [&[char]; 3]) -> Option<[usize; 3]> {
    let mut strides = [0; 3];
    for (stride, group) in strides.iter_mut().zip(groups) {
        *stride = usize::try_from(view.collapsed(&places(letters, group))?.1).ok()?;
    }
    Some(strides)
}

/// Whether one of the two inner strides is 1 and the other wide enough to be a leading dimension.
const fn is_matrix(strides: [usize; 3], rows: usize, columns: usize) -> bool {
    let [_, row, column] = strides;
    (column == 1 || columns == 1) && (row >= columns || rows == 1)
        || (row == 1 || rows == 1) && (column >= rows || columns == 1)
}

/// Whether a view can be read as a matrix of these rows and columns.
fn fits(view: &View, letters: &str, groups: [&[char]; 3], rows: usize, columns: usize) -> bool {
    matrix(view, letters, groups).is_some_and(|strides| is_matrix(strides, rows, columns))
}

fn sizes(view: &View, letters: &str, group: &[char]) -> usize {
    places(letters, group).iter().map(|axis| view.shape[*axis]).product()
}

impl Emitter<'_> {
    pub(super) fn linear(&mut self, linear: &Linear) -> Result<(), Refusal> {
        let layer = &self.graph.layers[linear.layer];
        let named = |why: Refusal| format!("{}: {why}", layer.name);
        match &layer.op {
            Op::Conv(conv) => self.convolution(linear, &conv.clone()).map_err(named),
            Op::EinSum(sum) => self.product(linear, &sum.clone()).map_err(named),
            other => Err(named(format!("no product in {}", other.kind()))),
        }
    }

    /// Products of one operand with several weights `[k, n]` (or `[n, k]`): one product with the weights side by side.
    pub(super) fn merged(&mut self, linears: &[Linear]) -> Result<(), Refusal> {
        let graph = self.graph;
        let first = &graph.layers[linears[0].layer];
        let Op::EinSum(sum) = &first.op else { return Err("merged layers are products".into()) };
        let kind = self.precision.kind();
        let x = self.view(first.inputs[0])?;
        let order: Vec<usize> = (0..x.shape.len()).collect();
        let x = self.as_needed(x, kind, &order, View::is_row_major);
        let k = x.shape[x.shape.len() - 1];
        let widths: Vec<usize> =
            linears.iter().map(|one| *graph.value(one.out).shape.last().unwrap_or(&1)).collect();
        let (n, m) = (widths.iter().sum::<usize>(), x.elements() / k);
        let weights = linears.iter().map(|one| graph.layers[one.layer].inputs[1]).collect();
        let w = self.weight(weights, weight_packing(&sum.inputs[1]), kind, n * k);
        let bias: Option<Vec<ValueId>> = linears.iter().map(|one| one.bias).collect();
        let bias = bias.map(|parts| self.weight(parts, Packing::Plain, kind, n));
        let mut shape = graph.value(linears[0].out).shape.clone();
        let last = shape.len() - 1;
        shape[last] = n;
        let order: Vec<usize> = (0..shape.len()).collect();
        let y = self.fresh(kind, &shape, &order);
        let gemm = Gemm {
            shape: GemmShape {
                precision: self.precision,
                kind,
                batch: 1,
                m,
                n,
                k,
                a: [0, k, 1],
                b: [0, k, 1],
                out: [0, n],
                residual: None,
                bias: bias.is_some(),
                relu: false,
                gelu: false,
            },
            a: x.operand(),
            b: Operand::At { place: w, bytes: 0 },
            out: y.operand(),
            bias: bias.map(|place| Operand::At { place, bytes: 0 }),
            residual: None,
        };
        self.push(Step::Gemm(gemm));
        let mut start = 0;
        for (one, width) in linears.iter().zip(widths) {
            self.set(one.out, y.sliced(last, start, 1, width));
            start += width;
        }
        Ok(())
    }

    fn product(&mut self, linear: &Linear, sum: &EinSum) -> Result<(), Refusal> {
        let graph = self.graph;
        let layer = &graph.layers[linear.layer];
        let kind = self.precision.kind();
        let axes = Axes::of(sum);
        let (la, lb) = (sum.inputs[0].as_str(), sum.inputs[1].as_str());
        let groups_a: [&[char]; 3] = [&axes.batch, &axes.m, &axes.k];
        let groups_b: [&[char]; 3] = [&axes.batch, &axes.n, &axes.k];
        let a = self.view(layer.inputs[0])?;
        let (m, k) = (sizes(&a, la, &axes.m), sizes(&a, la, &axes.k));
        let order_a = places(la, &[axes.batch.as_slice(), &axes.m, &axes.k].concat());
        let a = self.as_needed(a, kind, &order_a, |view| fits(view, la, groups_a, m, k));
        let b = self.right(layer.inputs[1], lb, &axes, k)?;
        let n = sizes(&b, lb, &axes.n);
        let order_y = places(&sum.output, &[axes.batch.as_slice(), &axes.m, &axes.n].concat());
        let y = self.product_output(linear.out, &order_y, &sum.output, &axes);
        let strides_y =
            matrix(&y, &sum.output, [&axes.batch, &axes.m, &axes.n]).ok_or("an output that lies apart")?;
        let batch = sizes(&y, &sum.output, &axes.batch);
        let bias = linear.bias.map(|id| self.weight(vec![id], Packing::Plain, kind, n));
        let mut residual = None;
        if let Some(id) = linear.residual {
            let view = self.view(id)?;
            let groups: [&[char]; 3] = [&axes.batch, &axes.m, &axes.n];
            let rows = |view: &View| matrix(view, &sum.output, groups).is_some_and(|s| s[2] == 1 || n == 1);
            let view = self.as_needed(view, kind, &order_y, rows);
            let strides = matrix(&view, &sum.output, groups).ok_or("a residual that lies apart")?;
            residual = Some((view.operand(), [strides[0], leading(strides[1], n)]));
        }
        let (Some(strides_a), Some(strides_b)) = (matrix(&a, la, groups_a), matrix(&b, lb, groups_b)) else {
            return Err("an operand that lies apart".into());
        };
        let gemm = Gemm {
            shape: GemmShape {
                precision: self.precision,
                kind,
                batch,
                m,
                n,
                k,
                a: strides_a,
                b: strides_b,
                out: [strides_y[0], leading(strides_y[1], n)],
                residual: residual.map(|(_, strides)| strides),
                bias: bias.is_some(),
                relu: linear.activation == Activation::Relu,
                gelu: linear.activation == Activation::GeluTanh,
            },
            a: a.operand(),
            b: b.operand(),
            out: y.operand(),
            bias: bias.map(|place| Operand::At { place, bytes: 0 }),
            residual: residual.map(|(operand, _)| operand),
        };
        self.push(Step::Gemm(gemm));
        self.set(linear.out, y);
        Ok(())
    }

    /// The right operand of a product. Rows of a weight become its outputs: the layout in which tensor cores read every
    /// type.
    fn right(&mut self, id: ValueId, letters: &str, axes: &Axes, k: usize) -> Result<View, Refusal> {
        let kind = self.precision.kind();
        let order = places(letters, &[axes.batch.as_slice(), &axes.n, &axes.k].concat());
        if axes.batch.is_empty() && self.graph.constant(id).is_some() {
            let shape = self.graph.value(id).shape.clone();
            let plain = order.windows(2).all(|pair| pair[0] < pair[1]);
            let packing = if plain { Packing::Plain } else { Packing::Permuted { order: order.clone() } };
            let place = self.weight(vec![id], packing, kind, shape.iter().product());
            let strides = super::view::strides_in_order(&shape, &order);
            return Ok(View { place, kind, offset: 0, shape, strides });
        }
        let view = self.view(id)?;
        let n = sizes(&view, letters, &axes.n);
        let groups: [&[char]; 3] = [&axes.batch, &axes.n, &axes.k];
        Ok(self.as_needed(view, kind, &order, |view| fits(view, letters, groups, n, k)))
    }

    fn product_output(&mut self, out: ValueId, order: &[usize], letters: &str, axes: &Axes) -> View {
        let y = self.allocate(out, order);
        let rows = matrix(&y, letters, [&axes.batch, &axes.m, &axes.n]);
        if rows.is_some_and(|strides| strides[2] == 1 || sizes(&y, letters, &axes.n) == 1) {
            return y;
        }
        let (kind, shape) = (y.kind, y.shape);
        self.fresh(kind, &shape, order)
    }

    fn convolution(&mut self, linear: &Linear, conv: &Conv) -> Result<(), Refusal> {
        let graph = self.graph;
        let layer = &graph.layers[linear.layer];
        let (kind, layout) = (self.precision.kind(), conv.window.layout);
        let rank = graph.value(linear.out).shape.len();
        let window = window2(&conv.window);
        let x = as_nchw(&self.view(layer.inputs[0])?, layout);
        if let Some(y) = self.patches(linear, conv, &x)? {
            self.set(linear.out, from_nchw(&y, layout, rank));
            return Ok(());
        }
        let depthwise =
            conv.groups == conv.in_channels && conv.in_channels == conv.out_channels && conv.groups > 1;
        let (x, pads) = self.padded(x, conv);
        let padded = x.shape[1];
        let input = if pads { padded } else { conv.in_channels / conv.groups };
        let channel = layout.channel_axis(rank);
        let y_order: Vec<usize> = (0..rank).filter(|axis| *axis != channel).chain([channel]).collect();
        let out = self.allocate(linear.out, &y_order);
        let y = as_nchw(&out, layout);
        let residual = self.conv_residual(linear.residual, layout)?;
        let bias_kind = if depthwise { Kind::F32 } else { kind };
        let bias = self.conv_bias(layer.inputs.get(2).copied(), conv.out_channels, bias_kind);
        if depthwise {
            self.depthwise(linear, conv, [&x, &y], bias.as_ref(), residual.as_ref());
            self.set(linear.out, from_nchw(&y, layout, rank));
            return Ok(());
        }
        let packing = Packing::Filter {
            source: conv.weight,
            out: conv.out_channels,
            input: if pads { conv.in_channels } else { input },
            window: window.kernel,
            padded: input,
        };
        let elements = conv.out_channels * window.kernel[0] * window.kernel[1] * input;
        let w = self.weight(vec![layer.inputs[1]], packing, kind, elements);
        let shape = ConvShape {
            precision: self.precision,
            kind,
            x: four(&x.shape),
            x_strides: strides4(&x)?,
            w: [conv.out_channels, input, window.kernel[0], window.kernel[1]],
            y: four(&y.shape),
            y_strides: strides4(&y)?,
            residual_strides: residual.as_ref().map(strides4).transpose()?,
            strides: window.strides,
            dilations: window.dilations,
            before: window.before,
            after: after(&x.shape, &y.shape, window.kernel, window.strides, window.dilations, window.before),
            groups: conv.groups,
            bias: bias.is_some(),
            activation: linear.activation,
        };
        let (epilogue, dense_bytes) = self.epilogue(&y, bias.as_ref(), residual.as_ref(), linear.activation);
        let gemm = self.as_product(&shape, &x, w, &y, bias.as_ref(), residual.as_ref(), linear.activation);
        let step = Convolution {
            x: x.operand(),
            w: Operand::At { place: w, bytes: 0 },
            bias: bias.as_ref().map(View::operand),
            residual: residual.as_ref().map(View::operand),
            y: y.operand(),
            epilogue,
            dense_bytes,
            gemm,
            shape,
        };
        self.push(Step::Conv(Box::new(step)));
        self.set(linear.out, from_nchw(&y, layout, rank));
        Ok(())
    }

    /// The input of a convolution in the precision's type, channels last, and whether channels were added: tensor cores read
    /// channels sixteen bytes at a time, so the few of an image are padded with zeros.
    fn padded(&mut self, x: View, conv: &Conv) -> (View, bool) {
        let kind = self.precision.kind();
        let wide = 16 / kind.size();
        let pads = conv.groups == 1 && conv.in_channels < wide;
        if !pads {
            return (self.as_needed(x, kind, &channels_last(4), is_even), false);
        }
        let mut shape = x.shape.clone();
        shape[1] = wide;
        let wider = self.fresh(kind, &shape, &channels_last(4));
        self.launch(&each::pad(&x, &[0; 4], &PadFill::Constant(0.0), &wider), &[&x, &wider]);
        (wider, true)
    }

    fn conv_residual(&mut self, id: Option<ValueId>, layout: graph::Layout) -> Result<Option<View>, Refusal> {
        let Some(id) = id else { return Ok(None) };
        let view = as_nchw(&self.view(id)?, layout);
        Ok(Some(self.as_needed(view, self.precision.kind(), &channels_last(4), is_even)))
    }

    /// A convolution in which every channel has its own filter, by a kernel of ours.
    fn depthwise(
        &mut self,
        linear: &Linear,
        conv: &Conv,
        [x, y]: [&View; 2],
        bias: Option<&View>,
        residual: Option<&View>,
    ) {
        let window = window2(&conv.window);
        let (source, channels) = (conv.weight, conv.out_channels);
        let packing = Packing::Depthwise { source, channels, window: window.kernel };
        let elements = channels * window.kernel[0] * window.kernel[1];
        let id = self.graph.layers[linear.layer].inputs[1];
        let weight = self.weight(vec![id], packing, Kind::F32, elements);
        let kernel = Depthwise {
            x,
            weight: Kind::F32,
            bias: bias.map(|view| view.kind),
            residual,
            y,
            window,
            activation: linear.activation,
        };
        let weight = View::dense(weight, Kind::F32, &[elements]);
        let mut views = vec![x, &weight];
        views.extend(bias);
        views.extend(residual);
        views.push(y);
        self.launch(&kernel.generate(), &views);
    }

    /// A convolution whose windows tile the image: the patches laid out as rows, times the filters as they are in the file.
    fn patches(&mut self, linear: &Linear, conv: &Conv, x: &View) -> Result<Option<View>, Refusal> {
        let window = window2(&conv.window);
        let ([kh, kw], [images, channels, h, w]) = (window.kernel, four(&x.shape));
        let tiles = window.kernel == window.strides
            && kh * kw > 1
            && h.is_multiple_of(kh)
            && w.is_multiple_of(kw)
            && window.before == [0, 0]
            && window.dilations == [1, 1]
            && conv.groups == 1
            && conv.weight == graph::WeightLayout::OutInSpatial
            && linear.residual.is_none()
            && matches!(linear.activation, Activation::None | Activation::Relu);
        if !tiles {
            return Ok(None);
        }
        let layer = &self.graph.layers[linear.layer];
        let kind = self.precision.kind();
        // Rows are pixels of the output: `[n, oh, ow, c, kh, kw]`.
        let s = &x.strides;
        let split = View {
            shape: vec![images, h / kh, w / kw, channels, kh, kw],
            strides: vec![s[0], s[2] * signed(kh), s[3] * signed(kw), s[1], s[2], s[3]],
            ..x.clone()
        };
        let out = self.allocate(linear.out, &channels_last(self.graph.value(linear.out).shape.len()));
        let y = as_nchw(&out, conv.window.layout);
        let Some((_, stride)) = y.collapsed(&[0, 2, 3]).filter(|_| y.strides[1] == 1) else {
            return Ok(None);
        };
        let rows = self.fresh(kind, &split.shape, &[0, 1, 2, 3, 4, 5]);
        self.copy(&split, &rows);
        let (m, n, k) = (images * (h / kh) * (w / kw), conv.out_channels, channels * kh * kw);
        let weight = self.weight(vec![layer.inputs[1]], Packing::Plain, kind, n * k);
        let bias = self.conv_bias(layer.inputs.get(2).copied(), n, kind);
        let shape = GemmShape {
            precision: self.precision,
            kind,
            batch: 1,
            m,
            n,
            k,
            a: [0, k, 1],
            b: [0, k, 1],
            out: [0, leading(usize::try_from(stride).unwrap_or(n), n)],
            residual: None,
            bias: bias.is_some(),
            relu: linear.activation == Activation::Relu,
            gelu: false,
        };
        self.push(Step::Gemm(Gemm {
            shape,
            a: rows.operand(),
            b: Operand::At { place: weight, bytes: 0 },
            out: y.operand(),
            bias: bias.as_ref().map(View::operand),
            residual: None,
        }));
        Ok(Some(y))
    }

    /// A bias as a vector of the output's channels; none when it is a single zero.
    fn conv_bias(&mut self, id: Option<ValueId>, channels: usize, kind: Kind) -> Option<View> {
        let id = id?;
        let elements = self.graph.value(id).elements();
        if super::group::scalar(self.graph, id) == Some(0.0) {
            return None;
        }
        let packing = if elements == 1 { Packing::Repeated { count: channels } } else { Packing::Plain };
        let place = self.weight(vec![id], packing, kind, channels);
        Some(View::dense(place, kind, &[channels]))
    }

    /// The kernel that finishes a bare convolution kept dense, channels last, at the beginning of scratch memory.
    fn epilogue(
        &mut self,
        y: &View,
        bias: Option<&View>,
        residual: Option<&View>,
        activation: Activation,
    ) -> (Launch, usize) {
        let strides = super::view::strides_in_order(&y.shape, &channels_last(4));
        let dense = View { strides, offset: 0, ..y.clone() };
        let mut operands = vec![("s".to_owned(), dense)];
        let mut value = "s".to_owned();
        if let Some(bias) = bias {
            let channel = View { shape: y.shape.clone(), strides: vec![0, 1, 0, 0], ..bias.clone() };
            operands.push(("b".into(), channel));
            value = format!("({value} + b)");
        }
        if let Some(residual) = residual {
            operands.push(("z".into(), residual.clone()));
            value = format!("({value} + z)");
        }
        let body = vec![format!("const float t = {value};")];
        let pointwise = Pointwise { operands, body, result: activate(activation, "t"), out: y.clone() };
        let mut arguments = vec![Operand::Scratch { bytes: 0 }];
        arguments.extend(pointwise.operands[1..].iter().map(|(_, view)| view.operand()));
        arguments.push(y.operand());
        (self.launch_of(&pointwise.generate(), arguments), y.elements() * y.kind.size())
    }

    /// A convolution whose window is one element, as a matrix product over pixels.
    #[expect(clippy::too_many_arguments, reason = "the operands of a convolution")]
    fn as_product(
        &self,
        shape: &ConvShape,
        x: &View,
        w: Place,
        y: &View,
        bias: Option<&View>,
        residual: Option<&View>,
        activation: Activation,
    ) -> Option<Gemm> {
        let plain = shape.w[2..] == [1, 1]
            && shape.strides == [1, 1]
            && shape.before == [0, 0]
            && shape.after == [0, 0]
            && shape.groups == 1
            && matches!(activation, Activation::None | Activation::Relu);
        let pixels = |view: &View| {
            let (_, stride) = view.collapsed(&[0, 2, 3])?;
            usize::try_from(stride).ok().filter(|_| view.strides[1] == 1)
        };
        if !plain {
            return None;
        }
        let m = y.shape[0] * y.shape[2] * y.shape[3];
        let (n, k) = (shape.w[0], shape.w[1]);
        let residual_rows = match residual {
            Some(view) => Some([0, leading(pixels(view)?, n)]),
            None => None,
        };
        Some(Gemm {
            shape: GemmShape {
                precision: self.precision,
                kind: shape.kind,
                batch: 1,
                m,
                n,
                k,
                a: [0, leading(pixels(x)?, k), 1],
                b: [0, k, 1],
                out: [0, leading(pixels(y)?, n)],
                residual: residual_rows,
                bias: bias.is_some(),
                relu: activation == Activation::Relu,
                gelu: false,
            },
            a: x.operand(),
            b: Operand::At { place: w, bytes: 0 },
            out: y.operand(),
            bias: bias.map(View::operand),
            residual: residual.map(View::operand),
        })
    }

    pub(super) fn deconvolution(&mut self, at: usize, x: &View, y: View) -> Result<(), Refusal> {
        let layer = &self.graph.layers[at];
        let Op::Deconv(deconv) = &layer.op else { return Err("not a transposed convolution".into()) };
        let window = window2(&deconv.window);
        let w = self.constant(layer.inputs[1], Kind::F32);
        let rank = w.shape.len();
        // To `[out, in / groups, h, w]`.
        let mut w = match deconv.weight {
            graph::WeightLayout::OutInSpatial => w,
            graph::WeightLayout::SpatialInOut => w.moved(rank - 1, 0).moved(rank - 1, 1),
            graph::WeightLayout::OutSpatialIn => w.moved(rank - 1, 1),
        };
        while w.shape.len() < 4 {
            w = w.with_axis(2);
        }
        let bias = self.conv_bias(layer.inputs.get(2).copied(), deconv.out_channels, Kind::F32);
        let (from, to) = (as_nchw(x, deconv.window.layout), as_nchw(&y, deconv.window.layout));
        let kernel = each::Transposed {
            x: &from,
            w: &w,
            bias: bias.as_ref(),
            y: &to,
            strides: window.strides,
            dilations: window.dilations,
            before: window.before,
            groups: deconv.groups,
        };
        let mut views = vec![&from, &w];
        views.extend(bias.as_ref());
        views.push(&to);
        self.launch(&kernel.generate(), &views);
        self.set(layer.outputs[0], y);
        Ok(())
    }
}

/// Whether channels lie side by side and nothing runs backwards.
fn is_even(view: &View) -> bool {
    view.strides[1] == 1 && view.strides.iter().all(|stride| *stride >= 0)
}

/// How a weight `[k, n]` or `[n, k]` becomes rows of outputs.
fn weight_packing(axes: &str) -> Packing {
    if axes == "kn" { Packing::Permuted { order: vec![1, 0] } } else { Packing::Plain }
}

/// A leading dimension: a single row has any.
fn leading(stride: usize, columns: usize) -> usize {
    stride.max(columns)
}

fn four(shape: &[usize]) -> [usize; 4] {
    [shape[0], shape[1], shape[2], shape[3]]
}

/// Strides of `[n, c, h, w]`; those of single elements are made what a dense tensor would have.
fn strides4(view: &View) -> Result<[usize; 4], Refusal> {
    let mut strides = [0; 4];
    let mut inner = 1isize;
    for axis in [1, 3, 2, 0] {
        let stride = if view.shape[axis] == 1 { inner } else { view.strides[axis] };
        strides[axis] = usize::try_from(stride).map_err(|_| "a tensor that runs backwards")?;
        inner = stride * signed(view.shape[axis]);
    }
    Ok(strides)
}

/// Padding at the end that makes the window reach exactly the output.
fn after(
    x: &[usize],
    y: &[usize],
    kernel: [usize; 2],
    strides: [usize; 2],
    dilations: [usize; 2],
    before: [usize; 2],
) -> [usize; 2] {
    std::array::from_fn(|axis| {
        let reach = (y[axis + 2] - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1;
        reach.saturating_sub(x[axis + 2] + before[axis])
    })
}
