//! Packing: which instances of which GPUs serve a set of tenants, each with a promise and a rate, on the fewest GPUs.
//!
//! A GPU is cut into MIG instances of 1, 2, 3, 4 or 7 slices ([`slots`]); an instance serves one model at a batch size with
//! some MPS processes, which was measured ([`ModelTable`]). [`published`] is ParvaGPU's scheduler (SC24), whose deployments
//! it reproduces; [`pack`] needs no more GPUs than that and proves how few there can be; [`judge_packing`] scores any
//! deployment from scratch.

mod bound;
mod choices;
mod deployment;
mod exact;
mod judge;
mod picture;
mod published;
pub mod slots;
mod tables;

#[cfg(test)]
mod tests;

pub use bound::Bound;
pub use choices::{Terms, Unserved, UnservedError};
pub use deployment::{Deployment, DeploymentError, Instance};
pub use exact::{PackError, PackReport, pack};
pub use judge::{PackFault, PackVerdict, TenantScore, judge_packing};
pub use picture::draw_packing;
pub use published::published;
pub use slots::{SLICES, Size};
pub use tables::{Measured, ModelTable, TableError, Tenant, demands};
