//! Parts of a device: what a model costs on each, where more units stop paying, and which batch and part to choose.
//!
//! ```text
//! Profile with `spatial` ─▶ Surface (latency over units × batch, corrected and said so)
//!                             ├─▶ knee      where more units stop paying
//!                             ├─▶ optimum   batch and units for a promise and a rate
//!                             └─▶ fit       D-STACK's execution-time model, with its error
//! pairs measured together   ─▶ Interference
//! ```
//!
//! Formulas are our reading of D-STACK (IEEE TCC 12(4), 2024), whose code is not public.

mod fit;
mod interference;
mod knee;
mod model;
mod optimum;
mod surface;

#[cfg(test)]
mod tests;

pub use fit::{Fit, FitError, fit};
pub use interference::{Interference, InterferenceFault, LinearInterference, Pair, Traffic};
pub use knee::{EPSILON, Knee, efficient, knee, sufficient};
pub use model::{ExecutionModel, KERNELS};
pub use optimum::{By, Demand, Optimum, Unfit, optimum};
pub use surface::{Cell, Correction, Point, Surface, SurfaceError, SurfaceFault};
