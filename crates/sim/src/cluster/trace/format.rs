//! The formats, how a file's first line tells them apart, and what each needs beside the trace.

use super::{
    Trace, TraceError, alibaba, gavel, muri, philly, pollux, shockwave, synergy, synergy_deployed, tiresias,
};
use crate::cluster::{Applications, ApplicationsError, Throughputs, ThroughputsError};

/// A format of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Muri (SIGCOMM'22).
    Muri,
    /// Tiresias (NSDI'19).
    Tiresias,
    /// Philly (ATC'19), one line a job.
    Philly,
    /// Synergy's job stream (OSDI'22).
    Synergy,
    /// Synergy's deployed traces: five columns without a header.
    SynergyDeployed,
    /// Pollux (OSDI'21) and Sia (SOSP'23).
    Pollux,
    /// Gavel (OSDI'20).
    Gavel,
    /// Shockwave (NSDI'23).
    Shockwave,
    /// Alibaba's GPU pods (ATC'23).
    Alibaba,
}

/// Texts that some formats need beside the trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Companions<'t> {
    /// Synergy's `profiles.json`.
    pub profiles: Option<&'t str>,
    /// Gavel's throughputs.
    pub throughputs: Option<&'t str>,
    /// Pollux's applications: file names as APPLICATION/FILE.csv, and their texts.
    pub applications: &'t [(String, String)],
    /// The only virtual cluster wanted of Philly's.
    pub cluster: Option<&'t str>,
}

/// Why a file is no trace.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// Its first line is like none of the formats.
    #[error("the format cannot be told from the first line; known are {}", Format::NAMES.map(|(name, _)| name).join(", "))]
    Unknown,
    /// The format needs another file.
    #[error("traces of this format need {0}")]
    Companion(&'static str),
    /// The trace has problems.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The throughputs have problems.
    #[error(transparent)]
    Throughputs(#[from] ThroughputsError),
    /// The applications have problems.
    #[error(transparent)]
    Applications(#[from] ApplicationsError),
}

impl Format {
    /// Each format by its name.
    pub const NAMES: [(&'static str, Self); 9] = [
        ("muri", Self::Muri),
        ("tiresias", Self::Tiresias),
        ("philly", Self::Philly),
        ("synergy", Self::Synergy),
        ("synergy-deployed", Self::SynergyDeployed),
        ("pollux", Self::Pollux),
        ("gavel", Self::Gavel),
        ("shockwave", Self::Shockwave),
        ("alibaba", Self::Alibaba),
    ];

    /// The format called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, format)| *format)
    }

    /// Tells the format by the first line.
    #[must_use]
    pub fn detect(text: &str) -> Option<Self> {
        let first = text.lines().find(|line| !line.trim().is_empty())?;
        match first.split('\t').count() {
            7 | 10 => return Some(Self::Gavel),
            12 => return Some(Self::Shockwave),
            _ => {}
        }
        let cells: Vec<&str> = first.split(',').map(str::trim).collect();
        let has = |names: &[&str]| names.iter().all(|name| cells.contains(name));
        let by_header: [(&[&str], Self); 7] = [
            (&["num_gpu", "iteration_time"], Self::Muri),
            (&["num_gpu", "submit_time"], Self::Tiresias),
            (&["timestamp", "num_gpus"], Self::Philly),
            (&["ideal_cpus", "arrival_s"], Self::Synergy),
            (&["application", "num_replicas"], Self::Pollux),
            (&["num_gpu", "gpu_milli"], Self::Alibaba),
            (&["num_gpu", "duration"], Self::Tiresias),
        ];
        let found = by_header.iter().find(|(names, _)| has(names)).map(|(_, format)| *format);
        let bare = cells.len() == 5 && cells[0].parse::<u64>().is_ok() && cells[1].parse::<f64>().is_err();
        found.or(bare.then_some(Self::SynergyDeployed))
    }

    /// Reads a trace of this format.
    ///
    /// # Errors
    /// When a companion is missing, or with everything that is wrong.
    pub fn read(self, text: &str, with: Companions<'_>) -> Result<Trace, FormatError> {
        let profiles = || with.profiles.ok_or(FormatError::Companion("Synergy's profiles (profiles.json)"));
        Ok(match self {
            Self::Muri => muri(text)?,
            Self::Tiresias => tiresias(text)?,
            Self::Philly => philly(text, with.cluster)?,
            Self::Synergy => synergy(text, profiles()?)?,
            Self::SynergyDeployed => synergy_deployed(text, profiles()?)?,
            Self::Shockwave => shockwave(text)?,
            Self::Alibaba => alibaba(text)?,
            Self::Gavel => {
                let missing = FormatError::Companion("Gavel's throughputs (simulation_throughputs.json)");
                gavel(text, &Throughputs::parse(with.throughputs.ok_or(missing)?)?)?
            }
            Self::Pollux => {
                if with.applications.is_empty() {
                    return Err(FormatError::Companion("Pollux's applications (a folder of measurements)"));
                }
                pollux(text, &Applications::parse(with.applications)?)?
            }
        })
    }
}
