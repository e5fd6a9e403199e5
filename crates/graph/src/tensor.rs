//! Element types and tensors in host memory.

use bytes::Bytes;
use std::fmt;

/// An element type. Little-endian, row-major everywhere; `Bool` is one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 8 bits.
    I8,
    /// Signed, 16 bits.
    I16,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// IEEE half.
    F16,
    /// IEEE single.
    F32,
    /// IEEE double.
    F64,
}

impl DType {
    /// Bytes of one element.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// The name KServe v2 gives it, for example `FP32`.
    #[must_use]
    pub const fn kserve(self) -> &'static str {
        match self {
            Self::Bool => "BOOL",
            Self::U8 => "UINT8",
            Self::U16 => "UINT16",
            Self::U32 => "UINT32",
            Self::U64 => "UINT64",
            Self::I8 => "INT8",
            Self::I16 => "INT16",
            Self::I32 => "INT32",
            Self::I64 => "INT64",
            Self::F16 => "FP16",
            Self::F32 => "FP32",
            Self::F64 => "FP64",
        }
    }

    /// The type that KServe v2 calls `name`.
    #[must_use]
    pub fn from_kserve(name: &str) -> Option<Self> {
        const ALL: [DType; 12] = [
            DType::Bool,
            DType::U8,
            DType::U16,
            DType::U32,
            DType::U64,
            DType::I8,
            DType::I16,
            DType::I32,
            DType::I64,
            DType::F16,
            DType::F32,
            DType::F64,
        ];
        ALL.into_iter().find(|dtype| dtype.kserve() == name)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.kserve())
    }
}

/// A dense tensor in host memory, row-major, little-endian. Clones share the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostTensor {
    dtype: DType,
    shape: Vec<usize>,
    data: Bytes,
}

/// Why bytes and shape do not make a tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// The shape's element count does not fit the address space.
    #[error("shape {shape:?} has more elements than memory can hold")]
    TooLarge {
        /// The shape.
        shape: Vec<usize>,
    },
    /// The data has the wrong length for the shape.
    #[error("shape {shape:?} of {dtype} needs {expected} bytes, got {found}")]
    Length {
        /// The shape.
        shape: Vec<usize>,
        /// The element type.
        dtype: DType,
        /// Bytes the shape needs.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
}

impl HostTensor {
    /// A tensor over `data`.
    ///
    /// # Errors
    /// When `data` is not exactly as long as `shape` and `dtype` say.
    pub fn new(dtype: DType, shape: Vec<usize>, data: impl Into<Bytes>) -> Result<Self, TensorError> {
        let data = data.into();
        let Some(expected) = byte_len(dtype, &shape) else { return Err(TensorError::TooLarge { shape }) };
        if data.len() != expected {
            return Err(TensorError::Length { shape, dtype, expected, found: data.len() });
        }
        Ok(Self { dtype, shape, data })
    }

    /// A tensor of `f32` values.
    ///
    /// # Errors
    /// When `values` has the wrong length for `shape`.
    pub fn from_f32(shape: Vec<usize>, values: &[f32]) -> Result<Self, TensorError> {
        Self::new(DType::F32, shape, values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
    }

    /// A tensor of `i64` values.
    ///
    /// # Errors
    /// When `values` has the wrong length for `shape`.
    pub fn from_i64(shape: Vec<usize>, values: &[i64]) -> Result<Self, TensorError> {
        Self::new(DType::I64, shape, values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
    }

    /// Its element type.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// Its dimensions, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its bytes.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Its elements as `f32`; `None` for another element type.
    #[must_use]
    pub fn to_f32(&self) -> Option<Vec<f32>> {
        (self.dtype == DType::F32).then(|| {
            self.data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
        })
    }
}

/// Bytes of a tensor of this type and shape; `None` when that overflows.
#[must_use]
pub(crate) fn byte_len(dtype: DType, shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(dtype.size(), |bytes, dim| bytes.checked_mul(*dim))
}
