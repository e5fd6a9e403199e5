//! Convolutions by cuDNN's backend interface: an operation graph (convolution, bias, addition, activation), the engines
//! its heuristics offer for it, and execution plans made of them.

use crate::blas::LibraryError;
use crate::driver::Stream;
use crate::lower::{Activation, ConvShape, Kind, Precision};
use cudarc::cudnn::sys;
use std::ffi::c_void;
use std::sync::Arc;
use sys::cudnnBackendAttributeName_t as Name;
use sys::cudnnBackendAttributeType_t as Type;
use sys::cudnnBackendDescriptorType_t as Desc;

/// The library's handle. Used by one thread at a time.
#[derive(Debug)]
pub(crate) struct Dnn {
    raw: sys::cudnnHandle_t,
}

// SAFETY: the handle is moved between threads but used by one at a time: it is kept under a lock.
unsafe impl Send for Dnn {}

impl Drop for Dnn {
    fn drop(&mut self) {
        // SAFETY: made by us, destroyed once.
        let _ = unsafe { sys::cudnnDestroy(self.raw) };
    }
}

fn check(call: &'static str, status: sys::cudnnStatus_t) -> Result<(), LibraryError> {
    match status {
        sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS => Ok(()),
        other => Err(LibraryError { call, why: format!("{other:?}") }),
    }
}

/// A backend descriptor with what it refers to.
#[derive(Debug)]
struct Descriptor {
    raw: sys::cudnnBackendDescriptor_t,
    /// Descriptors it points to.
    _needs: Vec<Arc<Self>>,
}

// SAFETY: descriptors are not changed once finished.
unsafe impl Send for Descriptor {}
// SAFETY: as above.
unsafe impl Sync for Descriptor {}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: made by us, destroyed once.
        let _ = unsafe { sys::cudnnBackendDestroyDescriptor(self.raw) };
    }
}

/// A descriptor being filled in.
struct Builder(Descriptor);

impl Builder {
    fn new(kind: Desc) -> Result<Self, LibraryError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is written.
        check("cudnnBackendCreateDescriptor", unsafe {
            sys::cudnnBackendCreateDescriptor(kind, &raw mut raw)
        })?;
        Ok(Self(Descriptor { raw, _needs: Vec::new() }))
    }

    fn set<T>(self, name: Name, kind: Type, values: &[T]) -> Result<Self, LibraryError> {
        let count = i64::try_from(values.len()).unwrap_or(i64::MAX);
        // SAFETY: the values have the type the attribute wants, and outlive the call.
        let status = unsafe {
            sys::cudnnBackendSetAttribute(self.0.raw, name, kind, count, values.as_ptr().cast::<c_void>())
        };
        check("cudnnBackendSetAttribute", status)
            .map_err(|error| LibraryError { why: format!("{} for {name:?}", error.why), ..error })?;
        Ok(self)
    }

    fn point(mut self, name: Name, to: &[Arc<Descriptor>]) -> Result<Self, LibraryError> {
        let raw: Vec<sys::cudnnBackendDescriptor_t> = to.iter().map(|one| one.raw).collect();
        self.0._needs.extend(to.iter().cloned());
        self.set(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &raw)
    }

    fn finish(self) -> Result<Arc<Descriptor>, LibraryError> {
        // SAFETY: the descriptor is alive.
        check("cudnnBackendFinalize", unsafe { sys::cudnnBackendFinalize(self.0.raw) })?;
        Ok(Arc::new(self.0))
    }
}

impl Descriptor {
    fn get<T: Clone>(&self, name: Name, kind: Type, mut values: Vec<T>) -> Result<Vec<T>, LibraryError> {
        let mut count = 0;
        let asked = i64::try_from(values.len()).unwrap_or(i64::MAX);
        // SAFETY: there is room for as many values as are asked for.
        let status = unsafe {
            sys::cudnnBackendGetAttribute(
                self.raw,
                name,
                kind,
                asked,
                &raw mut count,
                values.as_mut_ptr().cast(),
            )
        };
        check("cudnnBackendGetAttribute", status)?;
        values.truncate(usize::try_from(count).unwrap_or(0));
        Ok(values)
    }
}

/// One way to run a convolution.
#[derive(Debug)]
pub(crate) struct ConvPlan {
    plan: Arc<Descriptor>,
    /// Bytes of scratch memory it wants.
    pub(crate) workspace: usize,
    bias: bool,
    /// Whether it adds a tensor to the result.
    pub(crate) residual: bool,
}

/// Addresses of a convolution's operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConvAddresses {
    pub(crate) x: u64,
    pub(crate) w: u64,
    pub(crate) y: u64,
    pub(crate) bias: Option<u64>,
    pub(crate) residual: Option<u64>,
}

/// Unique ids of the tensors of an operation graph.
const X: i64 = 1;
const W: i64 = 2;
const Y: i64 = 3;
const BIAS: i64 = 4;
const RESIDUAL: i64 = 5;

/// Engine configurations taken from each heuristic.
const CANDIDATES: usize = 8;
/// More than the configurations of one heuristic.
const MOST: usize = 32;
/// More than the numbers of one call of [`Dnn::plans`].
pub(crate) const NUMBERS: usize = 2 * MOST;

const fn data(kind: Kind) -> sys::cudnnDataType_t {
    match kind {
        Kind::F16 => sys::cudnnDataType_t::CUDNN_DATA_HALF,
        Kind::Bf16 => sys::cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        _ => sys::cudnnDataType_t::CUDNN_DATA_FLOAT,
    }
}

fn longs(values: &[usize]) -> Vec<i64> {
    values.iter().map(|value| i64::try_from(*value).unwrap_or(i64::MAX)).collect()
}

fn tensor(
    id: i64,
    kind: sys::cudnnDataType_t,
    dims: &[usize],
    strides: &[usize],
    hidden: bool,
) -> Result<Arc<Descriptor>, LibraryError> {
    Builder::new(Desc::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?
        .set(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, Type::CUDNN_TYPE_DATA_TYPE, &[kind])?
        .set(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, Type::CUDNN_TYPE_INT64, &longs(dims))?
        .set(Name::CUDNN_ATTR_TENSOR_STRIDES, Type::CUDNN_TYPE_INT64, &longs(strides))?
        .set(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, Type::CUDNN_TYPE_INT64, &[id])?
        .set(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, Type::CUDNN_TYPE_INT64, &[16i64])?
        .set(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, Type::CUDNN_TYPE_BOOLEAN, &[hidden])?
        .finish()
}

/// Strides of a dense tensor `[n, c, h, w]` with channels last.
fn channels_last([_, c, h, w]: [usize; 4]) -> [usize; 4] {
    [c * h * w, 1, w * c, c]
}

impl Dnn {
    pub(crate) fn new() -> Result<Self, LibraryError> {
        // SAFETY: only looks for a library.
        if !unsafe { sys::is_culib_present() } {
            let why =
                "no cuDNN library was found; install cuDNN 9 and name its folder in LD_LIBRARY_PATH".into();
            return Err(LibraryError { call: "cudnnCreate", why });
        }
        let mut raw = std::ptr::null_mut();
        // SAFETY: the handle is written.
        check("cudnnCreate", unsafe { sys::cudnnCreate(&raw mut raw) })?;
        Ok(Self { raw })
    }

    /// The ways to run a convolution, with their numbers: with everything that follows it when `fused`, else alone into
    /// a dense tensor. Only number `only` when one is wanted. Empty when no engine takes it.
    pub(crate) fn plans(
        &self,
        shape: &ConvShape,
        fused: bool,
        only: Option<usize>,
    ) -> Result<Vec<(usize, ConvPlan)>, LibraryError> {
        let graph = self.graph(shape, fused)?;
        let mut plans = Vec::new();
        let modes = [
            sys::cudnnBackendHeurMode_t::CUDNN_HEUR_MODE_A,
            sys::cudnnBackendHeurMode_t::CUDNN_HEUR_MODE_FALLBACK,
        ];
        for (first, mode) in [0, MOST].into_iter().zip(modes) {
            let Ok(configs) = self.configurations(&graph, mode) else { continue };
            for (number, config) in configs.into_iter().enumerate().map(|(at, config)| (first + at, config)) {
                let unwanted = only.is_some_and(|only| only != number);
                if unwanted || !exact_enough(&config, shape.precision) {
                    continue;
                }
                let Ok(plan) = self.plan(config) else { continue };
                let workspace = plan
                    .get(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, Type::CUDNN_TYPE_INT64, vec![0i64])?
                    .first()
                    .copied()
                    .unwrap_or(0);
                let workspace = usize::try_from(workspace).unwrap_or(usize::MAX);
                let residual = fused && shape.residual_strides.is_some();
                plans.push((number, ConvPlan { plan, workspace, bias: fused && shape.bias, residual }));
            }
            if !plans.is_empty() {
                break;
            }
        }
        Ok(plans)
    }

    fn graph(&self, shape: &ConvShape, fused: bool) -> Result<Arc<Descriptor>, LibraryError> {
        let kind = data(shape.kind);
        let float = sys::cudnnDataType_t::CUDNN_DATA_FLOAT;
        let x = tensor(X, kind, &shape.x, &shape.x_strides, false)?;
        let w = tensor(W, kind, &shape.w, &channels_last(shape.w), false)?;
        let dense = channels_last(shape.y);
        let y_strides = if fused { shape.y_strides } else { dense };
        let y = tensor(Y, kind, &shape.y, &y_strides, false)?;
        // What follows the convolution, in order.
        let mut follow: Vec<(i64, bool)> = Vec::new();
        if fused && shape.bias {
            follow.push((BIAS, true));
        }
        if fused && shape.residual_strides.is_some() {
            follow.push((RESIDUAL, true));
        }
        if fused && shape.activation != Activation::None {
            follow.push((0, false));
        }
        let mut next = 100;
        let mut between = |last: bool| {
            next += 1;
            if last { Ok(y.clone()) } else { tensor(next, float, &shape.y, &dense, true) }
        };
        let mut value = between(follow.is_empty())?;
        let convolution = Builder::new(Desc::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?
            .set(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, Type::CUDNN_TYPE_INT64, &[2i64])?
            .set(Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, Type::CUDNN_TYPE_DATA_TYPE, &[float])?
            .set(
                Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE,
                Type::CUDNN_TYPE_CONVOLUTION_MODE,
                &[sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION],
            )?
            .set(Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, Type::CUDNN_TYPE_INT64, &longs(&shape.before))?
            .set(Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, Type::CUDNN_TYPE_INT64, &longs(&shape.after))?
            .set(Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, Type::CUDNN_TYPE_INT64, &longs(&shape.dilations))?
            .set(Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, Type::CUDNN_TYPE_INT64, &longs(&shape.strides))?
            .finish()?;
        let mut operations = vec![
            Builder::new(Desc::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)?
                .point(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, &[convolution])?
                .point(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, &[x])?
                .point(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, &[w])?
                .point(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, std::slice::from_ref(&value))?
                .set(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, Type::CUDNN_TYPE_FLOAT, &[1f32])?
                .set(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, Type::CUDNN_TYPE_FLOAT, &[0f32])?
                .finish()?,
        ];
        let channels = shape.y[1];
        for (place, (id, adds)) in follow.iter().enumerate() {
            let to = between(place + 1 == follow.len())?;
            let pointwise = if *adds { add()? } else { activation(shape.activation)? };
            let mut operation = Builder::new(Desc::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?
                .point(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[pointwise])?
                .point(Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &[value])?
                .point(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, std::slice::from_ref(&to))?;
            if *adds {
                let other = match (*id, shape.residual_strides) {
                    (RESIDUAL, Some(strides)) => tensor(RESIDUAL, kind, &shape.y, &strides, false)?,
                    _ => tensor(BIAS, kind, &[1, channels, 1, 1], &[channels, 1, channels, channels], false)?,
                };
                operation = operation.point(Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &[other])?;
            }
            operations.push(operation.finish()?);
            value = to;
        }
        Builder::new(Desc::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?
            .point(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &operations)?
            .set(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, Type::CUDNN_TYPE_HANDLE, &[self.raw])?
            .finish()
    }

    fn configurations(
        &self,
        graph: &Arc<Descriptor>,
        mode: sys::cudnnBackendHeurMode_t,
    ) -> Result<Vec<Arc<Descriptor>>, LibraryError> {
        let heuristic = Builder::new(Desc::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
            .point(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, std::slice::from_ref(graph))?
            .set(Name::CUDNN_ATTR_ENGINEHEUR_MODE, Type::CUDNN_TYPE_HEUR_MODE, &[mode])?
            .finish()?;
        // The library fills descriptors that it is given.
        let empty: Vec<Builder> = (0..CANDIDATES)
            .map(|_| Builder::new(Desc::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR))
            .collect::<Result<_, _>>()?;
        let raw: Vec<sys::cudnnBackendDescriptor_t> = empty.iter().map(|one| one.0.raw).collect();
        let filled = heuristic
            .get(Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, raw)?
            .len();
        let keep = |mut one: Builder| {
            one.0._needs.extend([heuristic.clone(), graph.clone()]);
            Arc::new(one.0)
        };
        Ok(empty.into_iter().take(filled).map(keep).collect())
    }

    fn plan(&self, config: Arc<Descriptor>) -> Result<Arc<Descriptor>, LibraryError> {
        Builder::new(Desc::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?
            .set(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, Type::CUDNN_TYPE_HANDLE, &[self.raw])?
            .point(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[config])?
            .finish()
    }

    /// Launches a convolution.
    pub(crate) fn launch(
        &self,
        plan: &ConvPlan,
        at: ConvAddresses,
        scratch: u64,
        stream: &Stream,
    ) -> Result<(), LibraryError> {
        // SAFETY: the stream is alive.
        check("cudnnSetStream", unsafe { sys::cudnnSetStream(self.raw, stream.raw().cast()) })?;
        let mut ids = vec![X, W, Y];
        let mut addresses = vec![at.x, at.w, at.y];
        if let Some(bias) = at.bias.filter(|_| plan.bias) {
            ids.push(BIAS);
            addresses.push(bias);
        }
        if let Some(residual) = at.residual.filter(|_| plan.residual) {
            ids.push(RESIDUAL);
            addresses.push(residual);
        }
        let pointers: Vec<*mut c_void> = addresses.iter().map(|address| *address as *mut c_void).collect();
        let pack = Builder::new(Desc::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?
            .set(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, Type::CUDNN_TYPE_INT64, &ids)?
            .set(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, Type::CUDNN_TYPE_VOID_PTR, &pointers)?
            .set(
                Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                Type::CUDNN_TYPE_VOID_PTR,
                &[scratch as *mut c_void],
            )?
            .finish()?;
        // SAFETY: plan and pack are finished; addresses come from the program's own memory.
        check("cudnnBackendExecute", unsafe { sys::cudnnBackendExecute(self.raw, plan.plan.raw, pack.raw) })
    }
}

fn pointwise(mode: sys::cudnnPointwiseMode_t) -> Result<Builder, LibraryError> {
    Builder::new(Desc::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?
        .set(Name::CUDNN_ATTR_POINTWISE_MODE, Type::CUDNN_TYPE_POINTWISE_MODE, &[mode])?
        .set(
            Name::CUDNN_ATTR_POINTWISE_MATH_PREC,
            Type::CUDNN_TYPE_DATA_TYPE,
            &[sys::cudnnDataType_t::CUDNN_DATA_FLOAT],
        )
}

fn add() -> Result<Arc<Descriptor>, LibraryError> {
    pointwise(sys::cudnnPointwiseMode_t::CUDNN_POINTWISE_ADD)?.finish()
}

fn activation(activation: Activation) -> Result<Arc<Descriptor>, LibraryError> {
    let relu = pointwise(sys::cudnnPointwiseMode_t::CUDNN_POINTWISE_RELU_FWD)?;
    match activation {
        Activation::Clipped(most) => relu
            .set(Name::CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, Type::CUDNN_TYPE_DOUBLE, &[0f64])?
            .set(Name::CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, Type::CUDNN_TYPE_DOUBLE, &[f64::from(most)])?
            .finish(),
        Activation::GeluTanh => {
            pointwise(sys::cudnnPointwiseMode_t::CUDNN_POINTWISE_GELU_APPROX_TANH_FWD)?.finish()
        }
        Activation::None | Activation::Relu => relu.finish(),
    }
}

/// Whether an engine computes as a precision promises: single precision does not round its operands for tensor cores,
/// operands of fewer bits are summed in single and not transformed (Winograd's transforms lose the bits they have).
fn exact_enough(config: &Arc<Descriptor>, precision: Precision) -> bool {
    use sys::cudnnBackendNumericalNote_t as Note;
    let Ok(engine) = Builder::new(Desc::CUDNN_BACKEND_ENGINE_DESCRIPTOR) else { return false };
    let found = config.get(
        Name::CUDNN_ATTR_ENGINECFG_ENGINE,
        Type::CUDNN_TYPE_BACKEND_DESCRIPTOR,
        vec![engine.0.raw],
    );
    let notes = engine.0.get(
        Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
        Type::CUDNN_TYPE_NUMERICAL_NOTE,
        vec![Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE; 16],
    );
    let (Ok(_), Ok(notes)) = (found, notes) else { return false };
    let refused: &[Note] = match precision {
        Precision::Fp32 => {
            &[Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE, Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS]
        }
        Precision::Tf32 | Precision::Fp16 | Precision::Bf16 => &[
            Note::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
            Note::CUDNN_NUMERICAL_NOTE_WINOGRAD,
            Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
            Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
            Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13,
        ],
    };
    !notes.iter().any(|note| refused.contains(note))
}
