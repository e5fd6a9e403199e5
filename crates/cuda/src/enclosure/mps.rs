//! MPS: whether a control daemon answers, what it limits its clients to, and percentages.
//!
//! A program that finds no daemon runs on without MPS and without its limit, so the daemon is looked for first.

use engine::{Capabilities, Surrounding};
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A limit on the multiprocessors of a client, 1 to 100. The driver rounds it up to whole multiprocessors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percentage(u32);

impl Percentage {
    /// No limit.
    pub const ALL: Self = Self(100);

    /// Checks a number.
    ///
    /// # Errors
    /// When it is not 1 to 100, with the nearest that is.
    pub const fn new(percentage: u32) -> Result<Self, MpsError> {
        match percentage {
            1..=100 => Ok(Self(percentage)),
            0 => Err(MpsError::Percentage { wanted: 0, nearest: Self(1) }),
            wanted => Err(MpsError::Percentage { wanted, nearest: Self::ALL }),
        }
    }

    /// The number.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Percentage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why this process cannot be a client with a percentage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MpsError {
    /// Not a percentage.
    #[error("MPS has no percentage {wanted}; there are 1 to 100, nearest: {nearest}")]
    Percentage {
        /// What was asked for.
        wanted: u32,
        /// What is nearest.
        nearest: Percentage,
    },
    /// No daemon; without one a program runs on unlimited.
    #[error("an MPS percentage needs a control daemon, and {why}; start one:\n{commands}")]
    NoDaemon {
        /// What was found instead.
        why: String,
        /// What to type.
        commands: String,
    },
    /// The daemon limits its clients to less.
    #[error("the MPS daemon limits its clients to {limit} %, {wanted} % cannot be had; nearest: {limit}")]
    Limited {
        /// What was asked for.
        wanted: Percentage,
        /// What the daemon allows.
        limit: Percentage,
    },
}

/// Where an MPS control daemon is, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    folder: PathBuf,
    program: PathBuf,
}

/// What is known of a control daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DaemonState {
    /// It answers; new clients are limited to this, where the control program could be asked.
    Answers(Option<Percentage>),
    /// Nobody answers, and why it is thought so.
    Absent(String),
}

/// A socket of the wrong type was found bound: somebody has it open.
const EPROTOTYPE: i32 = 91;
/// Longest wait for the control program, which answers within milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Where daemons and programs meet unless told otherwise.
const FOLDER: &str = "/tmp/nvidia-mps";

impl Daemon {
    /// The daemon that the driver would turn to, given the value of `CUDA_MPS_PIPE_DIRECTORY`.
    #[must_use]
    pub fn of(pipe_directory: Option<PathBuf>) -> Self {
        let folder = pipe_directory.filter(|folder| !folder.as_os_str().is_empty());
        Self::at(folder.unwrap_or_else(|| FOLDER.into()), "nvidia-cuda-mps-control".into())
    }

    /// A daemon with its pipes in `folder`, asked by `program`.
    #[must_use]
    pub const fn at(folder: PathBuf, program: PathBuf) -> Self {
        Self { folder, program }
    }

    /// The folder of its pipes.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether it answers.
    #[must_use]
    pub fn state(&self) -> DaemonState {
        match self.heard() {
            Ok(()) => DaemonState::Answers(self.default_percentage()),
            Err(why) => DaemonState::Absent(why),
        }
    }

    /// Checks that a client may have `wanted`. `visible` is the MIG instance whose daemon it is to be.
    ///
    /// # Errors
    /// When nobody answers, or the daemon's own limit is lower.
    pub fn check(&self, wanted: Percentage, visible: Option<&str>) -> Result<(), MpsError> {
        match self.state() {
            DaemonState::Answers(Some(limit)) if limit < wanted => Err(MpsError::Limited { wanted, limit }),
            DaemonState::Answers(_) => Ok(()),
            DaemonState::Absent(why) => Err(MpsError::NoDaemon { why, commands: self.commands(visible) }),
        }
    }

    /// The limit on a process that asks for none: whoever finds a daemon is its client. `set` is the process's own variable.
    #[must_use]
    pub fn implied(&self, set: Option<&str>) -> Option<Percentage> {
        let DaemonState::Answers(limit) = self.state() else { return None };
        let own = set.and_then(|text| Percentage::new(text.parse().ok()?).ok());
        Some(own.or(limit).unwrap_or(Percentage::ALL))
    }

    /// What clients share with each other.
    #[must_use]
    pub const fn surrounding() -> Surrounding {
        Surrounding { others: "other MPS clients", capabilities: Capabilities::NOTHING }
    }

    /// Whether somebody has the control socket open. A socket of another type asks: the kernel tells without a connection,
    /// and a file that outlived its daemon is found out.
    fn heard(&self) -> Result<(), String> {
        let path = self.folder.join("control");
        let shown = path.display();
        let asked = UnixDatagram::unbound().and_then(|socket| socket.connect(&path));
        let Err(error) = asked else { return Ok(()) };
        if error.raw_os_error() == Some(EPROTOTYPE) {
            return Ok(());
        }
        Err(match error.kind() {
            io::ErrorKind::NotFound => format!("there is no {shown}"),
            io::ErrorKind::ConnectionRefused => format!("nobody listens on {shown} any more"),
            _ => format!("{shown} cannot be asked ({error})"),
        })
    }

    /// What the daemon limits new clients to; nothing where the control program is not found or does not say.
    fn default_percentage(&self) -> Option<Percentage> {
        let told = self.ask("get_default_active_thread_percentage\n").ok()?;
        let whole = told.trim().split('.').next()?.parse().ok()?;
        Percentage::new(whole).ok()
    }

    /// Asks the control program, for so long and no longer.
    fn ask(&self, question: &str) -> io::Result<String> {
        let mut command = Command::new(&self.program);
        command.env("CUDA_MPS_PIPE_DIRECTORY", &self.folder);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = piped.spawn()?;
        let told = converse(&mut child, question);
        if told.is_err() {
            child.kill()?;
            child.wait()?;
        }
        told
    }

    /// What to type for a daemon of one's own, and for this program to find it.
    fn commands(&self, visible: Option<&str>) -> String {
        let pipe = match visible {
            // Without a slash at its end, for the folder beside it.
            _ if self.folder != Path::new(FOLDER) => {
                self.folder.components().collect::<PathBuf>().display().to_string()
            }
            Some(uuid) => format!("/tmp/raddle-mps-{uuid}"),
            None => "/tmp/raddle-mps".into(),
        };
        let devices = visible.map(|uuid| format!("{}={uuid} ", super::VISIBLE)).unwrap_or_default();
        format!(
            "  export CUDA_MPS_PIPE_DIRECTORY={pipe} CUDA_MPS_LOG_DIRECTORY={pipe}-log\n  \
             mkdir -p \"$CUDA_MPS_PIPE_DIRECTORY\" \"$CUDA_MPS_LOG_DIRECTORY\"\n  \
             {devices}nvidia-cuda-mps-control -d\n\
             then give this command again in the same shell; `echo quit | nvidia-cuda-mps-control` ends the daemon"
        )
    }
}

fn converse(child: &mut Child, question: &str) -> io::Result<String> {
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(question.as_bytes())?;
    }
    let begin = Instant::now();
    while child.try_wait()?.is_none() {
        if begin.elapsed() > PATIENCE {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut told = String::new();
    if let Some(stdout) = child.stdout.take() {
        // The answer is a number; a program that says more is not the one that was meant.
        stdout.take(64).read_to_string(&mut told)?;
    }
    Ok(told)
}
