//! Element types on the device, and how kernels spell them.

use graph::DType;

/// The precision a model computes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Precision {
    /// IEEE single throughout.
    #[default]
    Fp32,
    /// Single in memory; products round their operands to ten bits of mantissa, as PyTorch does by default for
    /// convolutions.
    Tf32,
    /// IEEE half in memory, sums in single.
    Fp16,
    /// bfloat16 in memory, sums in single.
    Bf16,
}

impl Precision {
    /// Its name in options and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
        }
    }

    /// The precision called `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Fp32, Self::Tf32, Self::Fp16, Self::Bf16].into_iter().find(|one| one.name() == name)
    }

    /// The type in which an output leaves that the file calls `dtype`.
    pub(crate) const fn delivers(self, dtype: DType, half: bool) -> DType {
        match (self, dtype) {
            (Self::Fp16, DType::F32) if half => DType::F16,
            _ => dtype,
        }
    }

    /// How single-precision values of a model are kept.
    pub(crate) const fn kind(self) -> Kind {
        match self {
            Self::Fp32 | Self::Tf32 => Kind::F32,
            Self::Fp16 => Kind::F16,
            Self::Bf16 => Kind::Bf16,
        }
    }
}

/// An element type in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Bool,
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

impl Kind {
    /// The type of a value that keeps the file's precision.
    pub(crate) const fn exact(dtype: DType) -> Self {
        match dtype {
            DType::Bool => Self::Bool,
            DType::U8 => Self::U8,
            DType::U16 => Self::U16,
            DType::U32 => Self::U32,
            DType::U64 => Self::U64,
            DType::I8 => Self::I8,
            DType::I16 => Self::I16,
            DType::I32 => Self::I32,
            DType::I64 => Self::I64,
            DType::F16 => Self::F16,
            DType::F32 => Self::F32,
            DType::F64 => Self::F64,
        }
    }

    pub(crate) const fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    pub(crate) const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32 | Self::F64)
    }

    /// Its type in memory, as the kernels' prelude names it.
    pub(crate) const fn stored(self) -> &'static str {
        match self {
            Self::Bool => "boolean",
            Self::U8 => "unsigned char",
            Self::U16 => "unsigned short",
            Self::U32 => "unsigned int",
            Self::U64 => "unsigned long long",
            Self::I8 => "signed char",
            Self::I16 => "short",
            Self::I32 => "int",
            Self::I64 => "long long",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "float",
            Self::F64 => "double",
        }
    }

    /// The type it is computed in.
    pub(crate) const fn computed(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U64 => "unsigned long long",
            Self::U8 | Self::U16 | Self::U32 | Self::I8 | Self::I16 | Self::I32 | Self::I64 => "long long",
            Self::F16 | Self::Bf16 | Self::F32 => "float",
            Self::F64 => "double",
        }
    }
}
