//! The server: models of a repository behind KServe v2, scheduled by the same policies as the simulator.
//!
//! ```text
//! repository ──▶ live (scheduler, partitions, models) ◀──Handle── http ──▶ kserve (the wire, as plain values)
//!                              └──────────────▶ metrics ◀───────────┘
//! ```

pub mod http;
pub mod kserve;
pub mod live;
pub mod metrics;
pub mod repository;
