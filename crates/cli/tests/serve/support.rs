//! A server process for one test: started on a port the system chooses, always ended with the test.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// No wait of a test is longer; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(600);

/// A folder that goes with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("serve-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        // Programs print real paths.
        Self(path.canonicalize().unwrap())
    }

    /// A path in the folder, as text.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Puts `bytes` at `path`, folders included.
    pub(crate) fn put(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Writes networks of the zoo into the folder, NAME/1/model.onnx each.
    pub(crate) fn zoo(&self, names: &[&str]) {
        let folder = self.0.display().to_string();
        text(&raddle(&[&["zoo", "--output", folder.as_str()], names].concat()));
    }

    /// Puts real model files into the folder, NAME.onnx each, without copying where the file system allows that.
    pub(crate) fn models(&self, names: &[&str]) {
        for name in names {
            let file = format!("{name}.onnx");
            let source = models().join(&file);
            assert!(source.exists(), "{} is missing; run `cargo xtask python`", source.display());
            let target = self.0.join(&file);
            if fs::hard_link(&source, &target).is_err() {
                fs::copy(&source, &target).unwrap();
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn cache() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache")
}

/// Where the real model files are.
pub(crate) fn models() -> PathBuf {
    std::env::var_os("RADDLE_MODELS").map_or_else(|| cache().join("models"), PathBuf::from)
}

/// Runs a Python script of the workspace; gives what it printed, which is also the text of its failure.
pub(crate) fn python(script: &str, arguments: &[&str]) -> String {
    let own = cache().join("python/bin/python");
    let python = std::env::var_os("RADDLE_PYTHON").map_or(own, PathBuf::from);
    assert!(python.exists(), "{} is missing; run `cargo xtask python`", python.display());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(script);
    text(&Command::new(python).arg(script).args(arguments).output().unwrap())
}

/// Runs `raddle` to its end.
pub(crate) fn raddle(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_raddle")).args(arguments).env("NO_COLOR", "1").output().unwrap()
}

/// What a command that succeeded printed.
pub(crate) fn text(output: &Output) -> String {
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    told
}

/// A `raddle serve` process.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    child: Child,
    lines: Receiver<String>,
    log: String,
}

impl Server {
    /// Serves `folder` and waits until everything in it that loads has loaded.
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut server = Self::launch(folder, arguments);
        server.until("ready: ");
        server
    }

    /// Serves `folder` and waits until it listens.
    pub(crate) fn launch(folder: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_raddle"));
        command.arg("serve").arg(folder).args(["--http-port", "0"]).args(arguments).env_remove("RADDLE_LOG");
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                // Nobody listens once the test is over.
                let _ = sender.send(line);
            }
        });
        let mut server = Self { address: SocketAddr::from(([0; 4], 0)), child, lines, log: String::new() };
        let line = server.until("listening on http://");
        server.address = line.rsplit("http://").next().unwrap().parse().unwrap();
        server
    }

    /// Waits for a line of the log that has `what` in it.
    pub(crate) fn until(&mut self, what: &str) -> String {
        let begin = Instant::now();
        loop {
            match self.lines.recv_timeout(PATIENCE.saturating_sub(begin.elapsed())) {
                Ok(line) => {
                    writeln!(self.log, "{line}").unwrap();
                    if line.contains(what) {
                        return line;
                    }
                }
                Err(error) => panic!("the server never said {what:?} ({error}):\n{}", self.log),
            }
        }
    }

    /// Everything logged until now.
    pub(crate) fn log(&mut self) -> &str {
        while let Ok(line) = self.lines.try_recv() {
            writeln!(self.log, "{line}").unwrap();
        }
        &self.log
    }

    pub(crate) fn url(&self) -> String {
        self.address.to_string()
    }

    /// Asks the server to drain and end.
    pub(crate) fn terminate(&self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    }

    /// Waits for the end of the process; its log is complete then.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            // The log ends with the process.
            match self.lines.recv_timeout(PATIENCE.saturating_sub(begin.elapsed())) {
                Ok(line) => writeln!(self.log, "{line}").unwrap(),
                Err(mpsc::RecvTimeoutError::Disconnected) => return self.child.wait().unwrap(),
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("the server does not end:\n{}", self.log),
            }
        }
    }

    /// Ends the server as an operator does; its journal is complete then.
    pub(crate) fn stop(mut self) {
        self.terminate();
        let status = self.wait();
        assert!(status.success(), "{status}\n{}", self.log);
    }

    /// Whether the process still runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// The most memory the process ever had, in bytes.
    pub(crate) fn memory_peak(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// The index: every model's state and why it is not ready.
    pub(crate) fn index(&self) -> Vec<(String, String, String)> {
        let reply = self.post("/v2/repository/index", "");
        assert_eq!(reply.status, 200, "{reply:?}");
        let field = |model: &Value, name: &str| model[name].as_str().unwrap_or("").to_owned();
        let entry = |model: &Value| (field(model, "name"), field(model, "state"), field(model, "reason"));
        reply.json().as_array().unwrap().iter().map(entry).collect()
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).unwrap()
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Reply {
        self.post_bytes(path, "", body.as_bytes()).unwrap()
    }

    /// Posts `body` with more header lines, each ended by CRLF; `None` when the server closed without a word.
    pub(crate) fn post_bytes(&self, path: &str, headers: &str, body: &[u8]) -> Option<Reply> {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
        );
        self.ask([head.as_bytes(), body].concat())
    }

    /// Sends `bytes` on a connection of their own and reads what comes back.
    pub(crate) fn ask(&self, bytes: impl AsRef<[u8]>) -> Option<Reply> {
        let mut connection = self.connect();
        // A server that has seen enough may close before it has read everything.
        let _ = connection.write_all(bytes.as_ref());
        read(&mut connection)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let connection = TcpStream::connect(self.address).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        connection
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone, where the test ended it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An HTTP reply.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The text of `{"error": …}`.
    pub(crate) fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_else(|| panic!("no error: {self:?}")).to_owned()
    }
}

/// Reads a reply to the end of its connection; `None` when there is none.
pub(crate) fn read(connection: &mut TcpStream) -> Option<Reply> {
    let mut bytes = Vec::new();
    if let Err(error) = connection.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "no end after {bytes:?}");
    }
    let split = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..split]).into_owned();
    let status = head.split(' ').nth(1)?.parse().unwrap();
    Some(Reply { status, head, body: bytes.split_off(split + 4) })
}

/// A journal's turns.
pub(crate) fn journal(path: &str) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.ends_with('\n'), "{path} ends in the middle of a line");
    text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Every decision of a journal with the time of its turn: `(now, act, why)`.
pub(crate) fn decisions(turns: &[Value]) -> Vec<(u64, Value, Value)> {
    let of_turn = |turn: &Value| {
        let now = turn["now"].as_u64().unwrap();
        let decisions = turn["decisions"].as_array().unwrap().clone();
        decisions.into_iter().map(move |decision| (now, decision["act"].clone(), decision["why"].clone()))
    };
    turns.iter().flat_map(of_turn).collect()
}

/// Every event of a journal with the time of its turn.
pub(crate) fn events(turns: &[Value]) -> Vec<(u64, Value)> {
    let of_turn = |turn: &Value| {
        let now = turn["now"].as_u64().unwrap();
        turn["events"].as_array().unwrap().clone().into_iter().map(move |event| (now, event))
    };
    turns.iter().flat_map(of_turn).collect()
}

/// What `raddle explain` says about a request, a line an incident.
pub(crate) fn explain(journal: &str, request: u64) -> Vec<String> {
    let told = text(&raddle(&["explain", journal, &format!("r{request}"), "--format", "json"]));
    let told: Value = serde_json::from_str(&told).unwrap();
    let line = |line: &Value| line.as_str().unwrap().to_owned();
    told["story"].as_array().unwrap().iter().map(line).collect()
}

/// Checks that a replay takes the same decisions, at least one of them, and the timeline drawn from it is JSON.
pub(crate) fn replays(journal: &str) {
    let told = text(&raddle(&["replay", journal, "--format", "json"]));
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["replay"]["same"], true, "{told}");
    assert!(told["replay"]["decisions"].as_u64().unwrap() > 0, "{told}");
    let timeline = format!("{journal}.timeline.json");
    text(&raddle(&["timeline", journal, "--output", &timeline]));
    spans(&timeline);
}

/// Checks that a timeline is complete JSON; gives the number of its entries.
pub(crate) fn spans(path: &str) -> usize {
    let timeline: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let entries = timeline.as_array().or_else(|| timeline["traceEvents"].as_array()).unwrap();
    assert!(!entries.is_empty(), "{path} is empty");
    entries.len()
}

/// Names of models in a state, from an index.
pub(crate) fn in_state(index: &[(String, String, String)], wanted: &str) -> BTreeSet<String> {
    index.iter().filter(|(_, state, _)| state == wanted).map(|(name, ..)| name.clone()).collect()
}
