//! Arguments of `raddle plan`, as typed.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(subcommand)]
    pub(crate) command: PlanCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// Place operators on devices so that the busiest has least to do.
    Place(PlaceArgs),
    /// Cut a network into the stages of a training pipeline.
    Pipeline(PipelineArgs),
    /// Score a plan from scratch, whoever made it.
    Judge(JudgeArgs),
}

/// A graph: an operator-graph JSON, Piper's JSON, PipeDream's graph.txt, or an ONNX file.
#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    /// Operator graph: the placement literature's JSON, Piper's JSON, PipeDream's graph.txt, or an ONNX file.
    pub(crate) graph: PathBuf,
    /// Speed of the link between an accelerator and its host, for files that tell sizes, not times: 12GB/s.
    #[arg(long, default_value = "12GB/s")]
    pub(crate) link: String,
    /// Unit of the times in a Piper file.
    #[arg(long, value_enum, default_value_t = TimeUnit::S)]
    pub(crate) piper_times: TimeUnit,
    /// Rows to bind an ONNX file's batch to.
    #[arg(long, default_value_t = 1)]
    pub(crate) batch: usize,
    /// Sizes of an ONNX file's free dimensions: name=size,…
    #[arg(long, value_delimiter = ',')]
    pub(crate) free: Vec<String>,
    /// Measured profile of an ONNX file (from `raddle profile --output`); its segments become the operators.
    #[arg(long)]
    pub(crate) profile: Option<PathBuf>,
    /// Without a profile: an accelerator's peak, for a roofline estimate of an ONNX file's layers, Tflop/s.
    #[arg(long, default_value_t = 100.0)]
    pub(crate) peak_tflops: f64,
    /// Without a profile: an accelerator's memory bandwidth, for the same estimate.
    #[arg(long, default_value = "1TB/s")]
    pub(crate) memory_bandwidth: String,
    /// How many times slower a CPU is than what an ONNX file's times are for.
    #[arg(long, default_value_t = 20.0)]
    pub(crate) cpu_slowdown: f64,
    /// Plan an ONNX file's training step: each layer gets a backward twin that takes twice as long.
    #[arg(long)]
    pub(crate) training: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TimeUnit {
    S,
    Ms,
}

#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    #[command(flatten)]
    pub(crate) graph: GraphArgs,
    /// Devices, instead of the file's own: 4x16GiB,2x8GiB@0.5,1cpu (count, memory, and speed where it is not 1).
    #[arg(long)]
    pub(crate) devices: Option<String>,
    /// Let a device hold several islands of the graph, instead of one contiguous part.
    #[arg(long)]
    pub(crate) islands: bool,
    /// Transfers overlap with computing.
    #[arg(long)]
    pub(crate) overlap: bool,
    /// Let parts be replicated; replicas exchange gradients at this speed: 10GB/s.
    #[arg(long)]
    pub(crate) exchange: Option<String>,
    /// Seconds to plan for; the best plan so far is kept.
    #[arg(long, default_value_t = 60.0)]
    pub(crate) time_limit: f64,
    /// Chance of the search for islands.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Moves that the search for islands tries.
    #[arg(long, default_value_t = plan::MOVES_MAX)]
    pub(crate) moves: u64,
    /// A solver for islands: HiGHS, when RADDLE_PYTHON or .cache/python has highspy.
    #[arg(long, value_enum, default_value_t = Solver::Auto)]
    pub(crate) solver: Solver,
    /// Write the plan here, as JSON.
    #[arg(short, long)]
    pub(crate) output: Option<PathBuf>,
    /// Draw the graph coloured by device here, as SVG.
    #[arg(long)]
    pub(crate) svg: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Solver {
    /// HiGHS when it is found and the plan is not yet proved.
    Auto,
    /// HiGHS, or an error.
    Highs,
    /// Only our own search and bounds.
    None,
}

#[derive(Debug, Args)]
pub(crate) struct PipelineArgs {
    #[command(flatten)]
    pub(crate) graph: GraphArgs,
    /// Machines, innermost level first: 4x12GB/s,4x1.25GB/s (members and the speed between two).
    #[arg(long)]
    pub(crate) machines: String,
    /// Memory of a device: 16GiB.
    #[arg(long)]
    pub(crate) memory: Option<String>,
    /// The published optimiser's answer, digit for digit, faults included.
    #[arg(long)]
    pub(crate) published: bool,
    /// With --published: count transfers, as its activation compression ratio 1 does.
    #[arg(long, requires = "published")]
    pub(crate) transfers: bool,
    /// Seconds to plan for; the best plan so far is kept.
    #[arg(long, default_value_t = 60.0)]
    pub(crate) time_limit: f64,
    /// Write the plan here, as JSON.
    #[arg(short, long)]
    pub(crate) output: Option<PathBuf>,
    /// Draw the graph coloured by stage here, as SVG.
    #[arg(long)]
    pub(crate) svg: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct JudgeArgs {
    #[command(flatten)]
    pub(crate) graph: GraphArgs,
    /// Plan: written by `raddle plan`, or in the placement literature's JSON of CPUs and FPGAs.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// Devices, instead of those the plan is for.
    #[arg(long)]
    pub(crate) devices: Option<String>,
    /// Transfers overlap with computing, for plans that do not say.
    #[arg(long)]
    pub(crate) overlap: bool,
    /// Draw the graph coloured by device here, as SVG.
    #[arg(long)]
    pub(crate) svg: Option<PathBuf>,
}
