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
    /// Run a pipeline's schedule on virtual time: makespan, bubble, memory, deadlocks.
    Schedule(Box<ScheduleArgs>),
    /// Plan anew when a device changes: what to move where, what that costs, when it pays.
    Replan(ReplanArgs),
    /// Pack tenants on MIG instances: the fewest GPUs, with a proof.
    Pack(crate::plan::pack::PackArgs),
    /// Find where more units of a device stop paying, and the best batch and part.
    Knee(crate::plan::knee::KneeArgs),
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
    /// Devices that share each layer of a Piper file (tensor parallelism); together they are one device of the plan.
    #[arg(long, default_value_t = 1)]
    pub(crate) tensor_parallel: usize,
    /// Take a Piper file's costs with activations recomputed, instead of kept.
    #[arg(long)]
    pub(crate) recompute: bool,
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
    /// Machines, each with these devices.
    #[arg(long, default_value_t = 1)]
    pub(crate) machines: usize,
    /// With --machines: speed of the link between machines, as a multiple of the link within one.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) across: f64,
    /// What is to be small: the busiest device's load, or the time of one sample.
    #[arg(long, value_enum, default_value_t = Objective::Throughput)]
    pub(crate) objective: Objective,
    /// With --objective latency: calls that an accelerator may run, each a part of the graph.
    #[arg(long, default_value_t = 1)]
    pub(crate) calls: usize,
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
pub(crate) enum Objective {
    /// The greatest load of a device: samples follow each other.
    Throughput,
    /// The time from a sample's arrival to its end.
    Latency,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Solver {
    /// HiGHS when it is found, the plan is not yet proved, and the graph has at most 20,000 operators.
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
    /// How minibatches follow each other.
    #[arg(long, value_enum, default_value_t = DisciplineName::Stashing)]
    pub(crate) discipline: DisciplineName,
    /// Minibatches between two exchanges of gradients (2bw), or of a round (flush).
    #[arg(long, default_value_t = 8)]
    pub(crate) minibatches: usize,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DisciplineName {
    /// Without a pause, the parameters of every minibatch in flight kept.
    Stashing,
    /// Without a pause, two versions of the parameters kept.
    #[value(name = "2bw")]
    TwoVersions,
    /// Drained after every round.
    Flush,
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

#[derive(Debug, Args)]
pub(crate) struct ScheduleArgs {
    /// In what order devices run passes.
    #[arg(long, value_enum, default_value_t = Order::OneFOneB)]
    pub(crate) order: Order,
    /// A schedule written as text, instead: a line a device, 0F0 0>F0 0<B0 0B0.
    #[arg(long)]
    pub(crate) text: Option<PathBuf>,
    /// Stages, all alike.
    #[arg(long, default_value_t = 4)]
    pub(crate) stages: usize,
    /// Microbatches.
    #[arg(long, default_value_t = 8)]
    pub(crate) microbatches: usize,
    /// Stages of a device, for the interleaved order.
    #[arg(long, default_value_t = 2)]
    pub(crate) chunks: usize,
    /// Replicas of each stage, for 1f1b-rr: 3,1,1.
    #[arg(long, value_delimiter = ',')]
    pub(crate) replicas: Vec<usize>,
    /// Times of a stage: forward, backward, gradients of weights, ms.
    #[arg(long, default_value = "1,1,1")]
    pub(crate) times: String,
    /// Time to send a stage's output to the next, ms.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) transfer_ms: f64,
    /// What a forward pass keeps for its backward pass.
    #[arg(long, default_value = "1MiB")]
    pub(crate) activation: String,
    /// What a stage holds all the time.
    #[arg(long, default_value = "0")]
    pub(crate) resident: String,
    /// Costs of a plan's stages, instead (written by `raddle plan pipeline`); needs its graph.
    #[arg(long, value_name = "PLAN", requires = "graph")]
    pub(crate) pipeline: Option<PathBuf>,
    /// The graph of that plan; a PipeDream or Piper file.
    #[arg(long)]
    pub(crate) graph: Option<PathBuf>,
    /// Transfers that a device takes part in at a time.
    #[arg(long, default_value_t = 4)]
    pub(crate) slots: usize,
    /// Senders wait for receivers, instead of going on at once.
    #[arg(long)]
    pub(crate) rendezvous: bool,
    /// Transfers are matched by order alone.
    #[arg(long)]
    pub(crate) in_order: bool,
    /// Print the schedule's steps, transfers included, instead of running it.
    #[arg(long)]
    pub(crate) print: bool,
    /// Draw a Chrome/Perfetto timeline here.
    #[arg(long)]
    pub(crate) timeline: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// All forward passes, then all backward passes.
    Gpipe,
    /// One forward, one backward, drained at the end.
    #[value(name = "1f1b")]
    OneFOneB,
    /// The same with replicated stages, which take turns.
    #[value(name = "1f1b-rr")]
    OneFOneBRr,
    /// Several stages a device.
    Interleaved,
    /// Zero bubble, H1.
    ZbH1,
    /// Zero bubble, V: two stages a device.
    ZbV,
}

#[derive(Debug, Args)]
pub(crate) struct ReplanArgs {
    #[command(flatten)]
    pub(crate) graph: GraphArgs,
    /// The running plan, as `raddle plan place --output` or an earlier replan wrote it.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// What happened: 2:speed=0.5, 1:memory=8GiB, 0:lost, add:16GiB@0.5. Devices are numbered group by group.
    #[arg(long, required = true)]
    pub(crate) change: Vec<String>,
    /// How fast a device takes in what moves to it.
    #[arg(long, default_value = "12GB/s")]
    pub(crate) moving: String,
    /// Samples that the new plan will run; moving has to pay within them.
    #[arg(long, default_value_t = 10_000.0)]
    pub(crate) samples: f64,
    /// Seconds to plan for.
    #[arg(long, default_value_t = 60.0)]
    pub(crate) time_limit: f64,
    /// Write the cheapest plan here, as JSON.
    #[arg(short, long)]
    pub(crate) output: Option<PathBuf>,
}
