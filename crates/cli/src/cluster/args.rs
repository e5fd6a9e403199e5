//! Arguments of `raddle simulate cluster`, as typed.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// Public trace; its format is told by its first line.
    pub(crate) trace: PathBuf,
    /// Format, when the first line misleads: muri, tiresias, philly, synergy, synergy-deployed, pollux, gavel, shockwave or
    /// alibaba.
    #[arg(long)]
    pub(crate) trace_format: Option<String>,
    /// Nodes as COUNTxGPUS, COUNTxGPUS:CPUS:GB or a comma-separated list of these; or a CSV file of nodes in Alibaba's
    /// format. By default those of the trace's own simulator.
    #[arg(long)]
    pub(crate) nodes: Option<String>,
    /// Policies to compare: a,b,c. gavel-packed, gavel-ftf-packed and gavel-makespan-packed let two jobs share GPUs as
    /// --throughputs measured them together.
    #[arg(long, value_delimiter = ',', default_value = "fifo,srtf,las")]
    pub(crate) policy: Vec<String>,
    /// Seeds for a spread: the first is the trace as it is, each other deals the jobs anew among the arrivals.
    #[arg(long, default_value_t = 1)]
    pub(crate) seeds: u32,
    /// Ask the policy at multiples of this only, s; 0 is at every event. By default as the trace's own simulator.
    #[arg(long)]
    pub(crate) round_s: Option<u64>,
    /// What policies believe of a job's time: exact, noisy:SPREAD (as noisy:0.3) or learned.
    #[arg(long, default_value = "exact")]
    pub(crate) belief: String,
    /// Synergy's profiles.json, for its traces.
    #[arg(long)]
    pub(crate) profiles: Option<PathBuf>,
    /// Gavel's throughputs, for its traces, and for what jobs that share a GPU cost each other.
    #[arg(long)]
    pub(crate) throughputs: Option<PathBuf>,
    /// Folder of Pollux's measured applications, for its traces and Sia's.
    #[arg(long)]
    pub(crate) applications: Option<PathBuf>,
    /// Only this virtual cluster of Philly's trace.
    #[arg(long)]
    pub(crate) virtual_cluster: Option<String>,
    /// Measure only jobs FROM..TO of the trace, counted from 0; the simulation ends when they have.
    #[arg(long)]
    pub(crate) window: Option<String>,
    /// Node failures as NODE@SECONDS or NODE@SECONDS+BACK_AFTER_SECONDS, comma-separated.
    #[arg(long, value_delimiter = ',')]
    pub(crate) lose: Vec<String>,
    /// Go on without the lines that have problems, after naming them.
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// Write each job's times here, as CSV.
    #[arg(long)]
    pub(crate) jobs: Option<PathBuf>,
    /// Draw distributions and the cluster over time here: .svg or .html.
    #[arg(long)]
    pub(crate) report: Option<PathBuf>,
    /// Tell why this job of the trace waited, at each decision, under the (only) policy.
    #[arg(long)]
    pub(crate) explain: Option<String>,
    /// Run the first policy until then, s from the trace's zero, then let each policy go on from that one snapshot, and tell
    /// how they differ.
    #[arg(long, conflicts_with_all = ["seeds", "journal", "explain", "jobs", "report", "window"])]
    pub(crate) what_if_at: Option<u64>,
    /// Jobs are as fast as the tables of --profiles say with any CPUs and memory, and policies believe what optimistic
    /// profiling finds of them; else a job has its speed-up with all it asks for or not at all.
    #[arg(long, requires = "profiles")]
    pub(crate) profiled: bool,
    /// Slow jobs whose GPUs lie on several nodes as Gavel's --throughputs measured it.
    #[arg(long, requires = "throughputs")]
    pub(crate) spread: bool,
    /// Record the turns of the (only) policy here.
    #[arg(long)]
    pub(crate) journal: Option<PathBuf>,
    /// Simulations at once; all cores by default.
    #[arg(long)]
    pub(crate) threads: Option<usize>,
}
