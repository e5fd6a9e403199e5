//! Command-line arguments, as typed. Turning them into rich values is each command's job.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::IpAddr;
use std::path::PathBuf;

/// Shares processors and GPUs among deep-learning models.
#[derive(Debug, Parser)]
#[command(name = "raddle", version, about, propagate_version = true)]
pub(crate) struct Cli {
    /// How results are printed.
    #[arg(long, global = true, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
    /// Say more; twice for everything. `RADDLE_LOG` takes a filter instead.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// How log lines look.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns for people.
    Table,
    /// One JSON document with a `schema_version`.
    Json,
    /// Comma-separated values with a header.
    Csv,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a repository of ONNX models over KServe v2.
    Serve(ServeArgs),
    /// Run policies on virtual time.
    #[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Simulate(SimulateCommand),
    /// Measure a model on this machine's processor or GPU.
    Profile(ProfileArgs),
    /// Show a model's layers, segments and costs.
    Inspect(InspectArgs),
    /// Show what this machine can be shared out as: devices, parts, MPS, MIG, core sets, and what each isolates.
    Parts(PartsArgs),
    /// Take every turn of a journal again and compare the decisions.
    Replay(JournalArgs),
    /// Tell why a request waited, was refused, or was stopped for others.
    Explain(ExplainArgs),
    /// Draw a journal as a Chrome/Perfetto timeline or an SVG picture.
    Timeline(TimelineArgs),
    /// Write the papers' networks as ONNX files with seeded weights.
    Zoo(ZooArgs),
    /// Plan where to cut a network and what to place where, with a proof.
    Plan(Box<crate::plan::args::PlanArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Folder of models in Triton's layout; a bare NAME/model.onnx or NAME.onnx needs no config.
    pub(crate) repository: PathBuf,
    /// Address to listen on. Anything but loopback is refused until there is authentication.
    #[arg(long, env = "RADDLE_HTTP_ADDRESS", default_value = "127.0.0.1")]
    pub(crate) http_address: IpAddr,
    /// Port; 0 lets the system choose.
    #[arg(long, env = "RADDLE_HTTP_PORT", default_value_t = 8000)]
    pub(crate) http_port: u16,
    /// Port for metrics alone; /metrics is always on the HTTP port too.
    #[arg(long)]
    pub(crate) metrics_port: Option<u16>,
    /// Policy: fifo, edf, timeslice, windows, pipeswitch; for a device in parts dstack, sgprs, daris, temporal, triton,
    /// clipper, nexus, gslice, gpulet, maxthroughput, maxmin, ideal.
    #[arg(long, default_value = "windows")]
    pub(crate) policy: String,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Time slice of the timeslice policy, ms.
    #[arg(long)]
    pub(crate) slice_ms: Option<u64>,
    /// Ageing of the windows policy: a request gains a class for each such time it waits, ms; 0 is never.
    #[arg(long)]
    pub(crate) ageing_ms: Option<u64>,
    /// Core sets that are partitions, for example "0;1" or "0-1"; all cores in one by default.
    #[arg(long)]
    pub(crate) cpu_partitions: Option<String>,
    /// Partitions may have cores in common, and so many runs may share a core at once: "0;1;0-1" with 1 is a grid.
    #[arg(long)]
    pub(crate) cpu_overlap: Option<u32>,
    /// These two models never run at the same time on a device: A,B. May be given several times.
    #[arg(long)]
    pub(crate) apart: Vec<String>,
    /// Others leave room for a run of a model on a part of at least so many units: MODEL=UNITS. May be given several times.
    #[arg(long)]
    pub(crate) floor: Vec<String>,
    /// max_batch_size of models that do not say.
    #[arg(long, default_value_t = 4)]
    pub(crate) max_batch_size: u32,
    /// Most segments a model is cut into.
    #[arg(long)]
    pub(crate) segments_max: Option<usize>,
    /// Largest request body.
    #[arg(long, default_value_t = 64 << 20)]
    pub(crate) http_max_input_size: usize,
    /// Longest wait for a request's header, and for each next piece of its body.
    #[arg(long, default_value_t = 30)]
    pub(crate) http_read_timeout_secs: u64,
    /// Requests in flight at most.
    #[arg(long, default_value_t = 4096)]
    pub(crate) in_flight_max: usize,
    /// After SIGTERM, requests in flight get this long.
    #[arg(long, default_value_t = 30)]
    pub(crate) exit_timeout_secs: u64,
    /// Stop when a model of the repository cannot be served, instead of serving the others.
    #[arg(long)]
    pub(crate) exit_on_error: bool,
    /// Record every turn here, for `raddle replay` and `raddle explain`.
    #[arg(long)]
    pub(crate) journal: Option<PathBuf>,
    /// Draw a Chrome/Perfetto timeline here.
    #[arg(long)]
    pub(crate) timeline: Option<PathBuf>,
}

/// Which device, and what of it.
#[derive(Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Device: cpu, cuda:N, or a MIG instance as mig:N, mig:UUID or mig:PROFILE; to serve, also several GPUs of one kind:
    /// cuda:0,1 or cuda:all.
    #[arg(long, default_value = "cpu")]
    pub(crate) device: String,
    /// At most so much of a GPU (or MIG instance), 1 to 100, as a client of a running MPS daemon.
    #[arg(long)]
    pub(crate) mps_percentage: Option<u32>,
    /// Precision on a GPU: fp32, tf32, fp16 or bf16. What clients send and receive stays as the files say.
    #[arg(long, default_value = "tf32")]
    pub(crate) precision: String,
    /// With --precision fp16: outputs that files call FP32 are FP16 for clients too, which halves what is sent.
    #[arg(long)]
    pub(crate) half_outputs: bool,
    /// Device memory for weights, MiB; models beyond it come and go as requests ask for them.
    #[arg(long, default_value_t = 8192)]
    pub(crate) weights_mib: u64,
    /// Device memory for the activations of one run, MiB.
    #[arg(long, default_value_t = 1024)]
    pub(crate) slot_mib: u64,
    /// Parts of a GPU: every range of multiples of so many multiprocessors, made as green contexts at start.
    #[arg(long, default_value_t = 0)]
    pub(crate) gpu_grid: u32,
    /// Single parts of a GPU, for example "0-31;32-63x2": multiprocessors 0 to 31, and 32 to 63 with two streams.
    #[arg(long)]
    pub(crate) gpu_parts: Option<String>,
    /// Runs that may share a multiprocessor at once.
    #[arg(long, default_value_t = 1)]
    pub(crate) gpu_overlap: u32,
    /// Parts of the smallest groups of multiprocessors there are, on which kernels with clusters of blocks may not fit.
    #[arg(long)]
    pub(crate) gpu_fine: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SimulateCommand {
    #[command(subcommand)]
    pub(crate) what: Option<SimulateWhat>,
    #[command(flatten)]
    pub(crate) scenario: Option<SimulateArgs>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SimulateWhat {
    /// Run a public trace of jobs on a cluster, under several policies.
    Cluster(Box<crate::cluster::ClusterArgs>),
    /// Take every turn of a cluster's journal again and compare the decisions.
    ClusterReplay(JournalArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// Scenario in TOML.
    pub(crate) scenario: PathBuf,
    /// Policies to compare, instead of the scenario's own: a,b,c.
    #[arg(long, value_delimiter = ',')]
    pub(crate) policy: Vec<String>,
    /// Seed, instead of the scenario's own.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Record the turns of the (only) policy here.
    #[arg(long)]
    pub(crate) journal: Option<PathBuf>,
    /// Draw a Chrome/Perfetto timeline of the (only) policy here.
    #[arg(long)]
    pub(crate) timeline: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    /// ONNX file.
    pub(crate) model: PathBuf,
    /// Batch buckets to measure.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8])]
    pub(crate) batches: Vec<u32>,
    /// Timed runs of each bucket; medians count.
    #[arg(long, default_value_t = 10)]
    pub(crate) repeats: u32,
    /// Cores to measure on, for example "1" or "0-1"; all by default.
    #[arg(long)]
    pub(crate) cores: Option<String>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Most segments the model is cut into.
    #[arg(long)]
    pub(crate) segments_max: Option<usize>,
    /// Sizes of free dimensions: name=size,…
    #[arg(long, value_delimiter = ',')]
    pub(crate) free: Vec<String>,
    /// Measure on parts of the device too: sets of cores, or a GPU's partitions; tells the knees.
    #[arg(long)]
    pub(crate) spatial: bool,
    /// Sizes of the parts, in cores; all up to 8 and halves above by default.
    #[arg(long, value_delimiter = ',', requires = "spatial")]
    pub(crate) parts: Vec<u32>,
    /// Measure instead how much this model (an ONNX file) and the other slow each other down on disjoint halves of the
    /// cores, or on two disjoint parts of a GPU: --gpu-parts "0-65;66-131".
    #[arg(long, requires = "spatial")]
    pub(crate) against: Option<PathBuf>,
    /// With --against: both on the same units; on a GPU on two streams of a part: --gpu-overlap 2, or --gpu-parts "0-65x2".
    #[arg(long, requires = "against", conflicts_with = "interference")]
    pub(crate) shared: bool,
    /// Put what --against measured on disjoint parts into this table, as JSON.
    #[arg(long, requires = "against")]
    pub(crate) interference: Option<PathBuf>,
    /// Write the profile here, for the simulator.
    #[arg(short, long)]
    pub(crate) output: Option<PathBuf>,
    /// Draw latency by batch and by segment here, as SVG; with --spatial, latency over units.
    #[arg(long)]
    pub(crate) svg: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// ONNX file.
    pub(crate) model: PathBuf,
    /// Rows to bind the batch to.
    #[arg(long, default_value_t = 1)]
    pub(crate) batch: usize,
    /// Sizes of free dimensions: name=size,…
    #[arg(long, value_delimiter = ',')]
    pub(crate) free: Vec<String>,
    /// Most segments the model is cut into.
    #[arg(long)]
    pub(crate) segments_max: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct PartsArgs {
    /// Only of this device: cpu, cuda:N, mig:N, mig:UUID or mig:PROFILE.
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// As a client of a running MPS daemon with this percentage.
    #[arg(long)]
    pub(crate) mps_percentage: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct JournalArgs {
    /// Journal written by `serve` or `simulate`.
    pub(crate) journal: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Journal written by `serve` or `simulate`.
    pub(crate) journal: PathBuf,
    /// Request number, as 17 or r17 (the reply's `raddle-request` header).
    pub(crate) request: String,
}

#[derive(Debug, Args)]
pub(crate) struct TimelineArgs {
    /// Journal written by `serve` or `simulate`.
    pub(crate) journal: PathBuf,
    /// File to write: .json for ui.perfetto.dev, .svg for a picture.
    #[arg(short, long)]
    pub(crate) output: PathBuf,
    /// In a picture, only from here on, ms; a .json file holds everything.
    #[arg(long)]
    pub(crate) from_ms: Option<u64>,
    /// In a picture, only up to here, ms.
    #[arg(long)]
    pub(crate) to_ms: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct ZooArgs {
    /// Networks to write; none lists them.
    pub(crate) names: Vec<String>,
    /// Folder; each network becomes NAME/1/model.onnx in it.
    #[arg(short, long, default_value = ".")]
    pub(crate) output: PathBuf,
    /// Seed of the weights.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
}
