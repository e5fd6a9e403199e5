//! Matrix products by cuBLASLt: one plan a shape, the algorithm measured among those its heuristic offers.

use crate::driver::Stream;
use crate::lower::{GemmShape, Kind, Precision};
use cudarc::cublaslt::{result, sys};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

/// A library call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed: {why}")]
pub(crate) struct LibraryError {
    pub(crate) call: &'static str,
    pub(crate) why: String,
}

fn failed(call: &'static str) -> impl Fn(result::CublasError) -> LibraryError {
    move |error| LibraryError { call, why: format!("{:?}", error.0) }
}

/// The library's handle.
#[derive(Debug)]
pub(crate) struct Blas {
    raw: sys::cublasLtHandle_t,
    /// Held while a plan's bias pointer is set and the plan launched.
    launching: Mutex<()>,
    /// Looks for ways without clusters of blocks too: parts of a device may have no room for them.
    pub(crate) clusterless: bool,
}

// SAFETY: cuBLASLt handles may be used from any thread, by several at once.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: the handle was made by us and is destroyed once.
        let _ = unsafe { result::destroy_handle(self.raw) };
    }
}

/// A product ready to be launched.
#[derive(Debug)]
pub(crate) struct GemmPlan {
    shape: GemmShape,
    desc: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 4],
    algorithms: Vec<sys::cublasLtMatmulHeuristicResult_t>,
    /// The chosen one.
    pub(crate) chosen: usize,
}

// SAFETY: descriptors are not changed after they were made, but for the bias pointer, which is set under a lock.
unsafe impl Send for GemmPlan {}
// SAFETY: as above.
unsafe impl Sync for GemmPlan {}

/// Addresses of a product's operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GemmAddresses {
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) out: u64,
    pub(crate) bias: Option<u64>,
    pub(crate) residual: Option<u64>,
}

/// Most bytes of scratch memory a product may want.
pub(crate) const WORKSPACE: usize = 32 << 20;
/// Algorithms that are measured.
const CANDIDATES: usize = 16;

const fn data(kind: Kind) -> sys::cudaDataType_t {
    match kind {
        Kind::F16 => sys::cudaDataType_t::CUDA_R_16F,
        Kind::Bf16 => sys::cudaDataType_t::CUDA_R_16BF,
        _ => sys::cudaDataType_t::CUDA_R_32F,
    }
}

impl Blas {
    pub(crate) fn new() -> Result<Self, LibraryError> {
        // SAFETY: only looks for a library.
        if !unsafe { sys::is_culib_present() } {
            let why = "no cuBLASLt library was found; install CUDA 13 and name its folder in LD_LIBRARY_PATH"
                .into();
            return Err(LibraryError { call: "cublasLtCreate", why });
        }
        let raw = result::create_handle().map_err(failed("cublasLtCreate"))?;
        Ok(Self { raw, launching: Mutex::new(()), clusterless: false })
    }

    /// The ways to compute a product; the heuristic's favourite first.
    pub(crate) fn plan(&self, shape: &GemmShape) -> Result<GemmPlan, LibraryError> {
        let compute = match shape.precision {
            Precision::Tf32 => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let desc = result::create_matmul_desc(compute, sys::cudaDataType_t::CUDA_R_32F)
            .map_err(failed("cublasLtMatmulDescCreate"))?;
        let mut plan = GemmPlan {
            shape: shape.clone(),
            desc,
            layouts: [std::ptr::null_mut(); 4],
            algorithms: Vec::new(),
            chosen: 0,
        };
        let kind = data(shape.kind);
        let (m, n, k) = (shape.m, shape.n, shape.k);
        let inner = |strides: [usize; 3]| strides[2] == 1 || k == 1;
        // The library counts columns first: its left operand is our weight, its right one our rows.
        let transposed = u32::from;
        let (left, right) = (inner(shape.b), inner(shape.a));
        plan.attribute(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA, transposed(left))?;
        plan.attribute(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSB, transposed(!right))?;
        plan.layouts[0] = if left {
            layout(kind, k, n, shape.b[1].max(k), shape.batch, shape.b[0])?
        } else {
            layout(kind, n, k, shape.b[2].max(n), shape.batch, shape.b[0])?
        };
        plan.layouts[1] = if right {
            layout(kind, k, m, shape.a[1].max(k), shape.batch, shape.a[0])?
        } else {
            layout(kind, m, k, shape.a[2].max(m), shape.batch, shape.a[0])?
        };
        let [batch, row] = shape.residual.unwrap_or(shape.out);
        plan.layouts[2] = layout(kind, n, m, row.max(n), shape.batch, batch)?;
        plan.layouts[3] = layout(kind, n, m, shape.out[1].max(n), shape.batch, shape.out[0])?;
        use sys::cublasLtEpilogue_t as Epilogue;
        let epilogue = match (shape.bias, shape.relu, shape.gelu) {
            (false, false, false) => Epilogue::CUBLASLT_EPILOGUE_DEFAULT,
            (false, true, _) => Epilogue::CUBLASLT_EPILOGUE_RELU,
            (false, false, true) => Epilogue::CUBLASLT_EPILOGUE_GELU,
            (true, false, false) => Epilogue::CUBLASLT_EPILOGUE_BIAS,
            (true, true, _) => Epilogue::CUBLASLT_EPILOGUE_RELU_BIAS,
            (true, false, true) => Epilogue::CUBLASLT_EPILOGUE_GELU_BIAS,
        };
        plan.attribute(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue)?;
        if shape.bias {
            // Any aligned address stands for the bias while algorithms are looked for.
            plan.attribute(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER, 512u64)?;
        }
        plan.algorithms = self.algorithms(&plan)?;
        if self.clusterless {
            let twins: Vec<_> =
                plan.algorithms.iter().filter_map(|one| self.without_cluster(&plan, one)).collect();
            plan.algorithms.extend(twins);
        }
        Ok(plan)
    }

    fn algorithms(&self, plan: &GemmPlan) -> Result<Vec<sys::cublasLtMatmulHeuristicResult_t>, LibraryError> {
        let preference = result::create_matmul_pref().map_err(failed("cublasLtMatmulPreferenceCreate"))?;
        let bytes = WORKSPACE;
        let attribute = sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        // SAFETY: the attribute is a size, and outlives the call.
        unsafe { result::set_matmul_pref_attribute(preference, attribute, (&raw const bytes).cast(), 8) }
            .map_err(failed("cublasLtMatmulPreferenceSetAttribute"))?;
        let mut found: Vec<MaybeUninit<sys::cublasLtMatmulHeuristicResult_t>> =
            (0..CANDIDATES).map(|_| MaybeUninit::zeroed()).collect();
        let mut count = 0;
        let [a, b, c, d] = plan.layouts;
        // SAFETY: every descriptor is alive; the buffer holds as many results as are asked for.
        let code = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                self.raw,
                plan.desc,
                a,
                b,
                c,
                d,
                preference,
                i32::try_from(CANDIDATES).unwrap_or(1),
                found.as_mut_ptr().cast(),
                &raw mut count,
            )
        };
        // SAFETY: the preference was made above.
        let _ = unsafe { result::destroy_matmul_pref(preference) };
        code.result().map_err(failed("cublasLtMatmulAlgoGetHeuristic"))?;
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: the library filled that many, and zeros are valid for the rest.
        let all: Vec<_> = found.into_iter().take(count).map(|one| unsafe { one.assume_init() }).collect();
        let usable: Vec<_> =
            all.into_iter().filter(|one| one.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS).collect();
        if usable.is_empty() {
            let why = format!("no algorithm for {:?}", plan.shape);
            return Err(LibraryError { call: "cublasLtMatmulAlgoGetHeuristic", why });
        }
        Ok(usable)
    }

    /// The same algorithm with clusters of one block, where it can do without larger ones.
    fn without_cluster(
        &self,
        plan: &GemmPlan,
        algorithm: &sys::cublasLtMatmulHeuristicResult_t,
    ) -> Option<sys::cublasLtMatmulHeuristicResult_t> {
        let mut twin = *algorithm;
        let attribute = sys::cublasLtMatmulAlgoConfigAttributes_t::CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
        let one = sys::cublasLtClusterShape_t::CUBLASLT_CLUSTER_SHAPE_1x1x1 as u16;
        let [a, b, c, d] = plan.layouts;
        // SAFETY: the attribute is a number of 16 bits; every descriptor is alive; the result is filled in by the call.
        unsafe {
            sys::cublasLtMatmulAlgoConfigSetAttribute(
                &raw mut twin.algo,
                attribute,
                (&raw const one).cast(),
                2,
            )
            .result()
            .ok()?;
            let algo = twin.algo;
            sys::cublasLtMatmulAlgoCheck(self.raw, plan.desc, a, b, c, d, &raw const algo, &raw mut twin)
                .result()
                .ok()?;
            twin.algo = algo;
        }
        let runs =
            twin.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS && twin.workspaceSize <= WORKSPACE;
        runs.then_some(twin)
    }

    /// Launches the product by one of its algorithms.
    pub(crate) fn launch(
        &self,
        plan: &GemmPlan,
        algorithm: usize,
        at: GemmAddresses,
        scratch: u64,
        stream: &Stream,
    ) -> Result<(), LibraryError> {
        let _launching = self.launching.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bias) = at.bias {
            plan.attribute(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)?;
        }
        let (one, beta) = (1f32, if at.residual.is_some() { 1f32 } else { 0f32 });
        let [a, b, c, d] = plan.layouts;
        let pointer = |address: u64| address as *const c_void;
        // SAFETY: descriptors are alive, addresses come from the program's own memory, scratch memory is large enough.
        unsafe {
            result::matmul(
                self.raw,
                plan.desc,
                (&raw const one).cast(),
                (&raw const beta).cast(),
                pointer(at.b),
                a,
                pointer(at.a),
                b,
                pointer(at.residual.unwrap_or(at.out)),
                c,
                at.out as *mut c_void,
                d,
                &raw const plan.algorithms[algorithm].algo,
                scratch as *mut c_void,
                WORKSPACE,
                stream.raw().cast(),
            )
        }
        .map_err(failed("cublasLtMatmul"))
    }
}

fn layout(
    kind: sys::cudaDataType_t,
    rows: usize,
    columns: usize,
    leading: usize,
    batch: usize,
    stride: usize,
) -> Result<sys::cublasLtMatrixLayout_t, LibraryError> {
    let leading = i64::try_from(leading).unwrap_or(i64::MAX);
    let made = result::create_matrix_layout(kind, rows as u64, columns as u64, leading)
        .map_err(failed("cublasLtMatrixLayoutCreate"))?;
    if batch > 1 {
        let count = i32::try_from(batch).unwrap_or(i32::MAX);
        let stride = i64::try_from(stride).unwrap_or(i64::MAX);
        use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
        // SAFETY: both attributes have the types the library documents and outlive the calls.
        unsafe {
            let set = result::set_matrix_layout_attribute;
            set(made, Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, (&raw const count).cast(), 4)
                .and_then(|()| {
                    set(
                        made,
                        Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                        (&raw const stride).cast(),
                        8,
                    )
                })
                .map_err(failed("cublasLtMatrixLayoutSetAttribute"))?;
        }
    }
    Ok(made)
}

impl GemmPlan {
    fn attribute<T>(&self, name: sys::cublasLtMatmulDescAttributes_t, value: T) -> Result<(), LibraryError> {
        // SAFETY: the value has the type the library documents for the attribute, and outlives the call.
        unsafe {
            result::set_matmul_desc_attribute(self.desc, name, (&raw const value).cast(), size_of::<T>())
        }
        .map_err(failed("cublasLtMatmulDescSetAttribute"))
    }

    /// How many algorithms there are to choose from.
    pub(crate) fn candidates(&self) -> usize {
        self.algorithms.len()
    }
}

impl Drop for GemmPlan {
    fn drop(&mut self) {
        for layout in self.layouts {
            if !layout.is_null() {
                // SAFETY: made by us, destroyed once.
                let _ = unsafe { result::destroy_matrix_layout(layout) };
            }
        }
        // SAFETY: as above.
        let _ = unsafe { result::destroy_matmul_desc(self.desc) };
    }
}
