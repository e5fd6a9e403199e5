//! A model as imported: its interface, and its graph at any set of sizes.

use crate::convert::{SizeError, convert};
use crate::import::{self, Batch, ImportError, ImportLimits, Typed};
use crate::ir::Graph;
use crate::rewrite::{self, Folded};
use crate::tensor::DType;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use tract_onnx::prelude::{Symbol, TDim, ToDim};

/// A model read from an ONNX file, not yet bound to sizes or a device.
#[derive(Debug)]
pub struct Model {
    name: String,
    typed: Typed,
    limits: ImportLimits,
    folded: Folded,
}

/// An input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name in the file.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Dimensions, outermost first.
    pub shape: Vec<Dim>,
}

/// A dimension of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dim {
    /// Rows: the same number for every port that has them.
    Batch,
    /// A number.
    Fixed(usize),
    /// A name the caller gives a size to, or, for outputs, an expression over such names.
    Free(String),
}

/// Numbers for everything a model leaves open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Rows.
    pub batch: usize,
    /// A size for each of [`Model::free_dims`].
    pub free: BTreeMap<String, usize>,
}

impl Sizes {
    /// Rows only, for models without free dimensions.
    #[must_use]
    pub const fn batch(rows: usize) -> Self {
        Self { batch: rows, free: BTreeMap::new() }
    }
}

impl Model {
    /// Reads the ONNX file at `path`. External data is read from the file's own folder only.
    ///
    /// # Errors
    /// When the file cannot be read, breaks the rules of ONNX, exceeds a limit or uses what we cannot run; problems of
    /// the model are reported all at once.
    pub fn import(name: &str, path: &Path, limits: &ImportLimits) -> Result<Self, ImportError> {
        Ok(Self::new(name, import::from_path(path, limits)?, limits))
    }

    /// Reads an ONNX file that is already in memory; it cannot have external data.
    ///
    /// # Errors
    /// As [`Model::import`].
    pub fn from_bytes(name: &str, bytes: Vec<u8>, limits: &ImportLimits) -> Result<Self, ImportError> {
        Ok(Self::new(name, import::from_bytes(bytes, limits)?, limits))
    }

    fn new(name: &str, typed: Typed, limits: &ImportLimits) -> Self {
        Self { name: name.to_owned(), typed, limits: *limits, folded: Folded::default() }
    }

    /// Its name, as given at import.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the caller supplies, in the file's order.
    #[must_use]
    pub fn inputs(&self) -> &[Port] {
        &self.typed.inputs
    }

    /// What the caller receives, in the file's order.
    #[must_use]
    pub fn outputs(&self) -> &[Port] {
        &self.typed.outputs
    }

    /// Whether the number of rows may vary, and if not, why.
    #[must_use]
    pub const fn batch(&self) -> &Batch {
        &self.typed.batch
    }

    /// Names of the dimensions, other than the batch, that [`Sizes::free`] must give.
    pub fn free_dims(&self) -> impl Iterator<Item = &str> {
        self.typed.free.keys().map(String::as_str)
    }

    /// Numbers that training would change, as the file declares them: batch normalisations count their scale and shift
    /// but not their running statistics, and nothing is counted that an operator makes up.
    #[must_use]
    pub const fn parameters(&self) -> u64 {
        self.typed.parameters
    }

    /// The model's graph at `sizes`, normalisations folded. Weights are shared between all graphs of a model.
    ///
    /// # Errors
    /// When a size is missing, unknown, zero or not what the file fixes, or when the model cannot take it.
    pub fn at(&self, sizes: &Sizes) -> Result<Graph, SizeError> {
        let mut graph = self.unfolded(sizes)?;
        rewrite::fold(&mut graph, &self.folded);
        Ok(graph)
    }

    /// The model's graph at `sizes` as the file has it: what folding must not change the results of.
    ///
    /// # Errors
    /// As [`Model::at`].
    pub fn unfolded(&self, sizes: &Sizes) -> Result<Graph, SizeError> {
        let sized = self.typed.source.at(&self.symbols(sizes)?, &self.limits)?;
        convert(&self.name, sizes.batch, &sized, &self.typed.outputs, &self.folded)
    }

    fn symbols(&self, sizes: &Sizes) -> Result<HashMap<Symbol, TDim>, SizeError> {
        match &self.typed.batch {
            Batch::Baked { rows, why } if *rows != sizes.batch => {
                let (model, asked) = (self.name.clone(), sizes.batch);
                return Err(SizeError::Batch { model, rows: *rows, asked, why: why.clone() });
            }
            _ => {}
        }
        let mut symbols = HashMap::new();
        if let Some(symbol) = &self.typed.batch_symbol {
            symbols.insert(symbol.clone(), positive("batch", sizes.batch)?);
        }
        for (name, symbol) in &self.typed.free {
            let size = sizes.free.get(name).ok_or_else(|| SizeError::Missing { dim: name.clone() })?;
            symbols.insert(symbol.clone(), positive(name, *size)?);
        }
        match sizes.free.keys().find(|name| !self.typed.free.contains_key(*name)) {
            Some(dim) => Err(SizeError::Unknown { dim: dim.clone() }),
            None => Ok(symbols),
        }
    }
}

fn positive(dim: &str, size: usize) -> Result<TDim, SizeError> {
    if size == 0 { Err(SizeError::Zero { dim: dim.to_owned() }) } else { Ok(size.to_dim()) }
}
