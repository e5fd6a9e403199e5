//! A server for one test: its repository on disk, its runtime, its port.

use engine::{CpuDevice, Device};
use graph::zoo::{self, ZooOptions};
use graph::{Dim, ImportLimits, SegmentOptions};
use sched::node::policy::Choice;
use server::http::{self, Addresses, Catalog, HttpLimits, Serving};
use server::live::{Calibration, Handle, Limits, Readiness, Runtime, RuntimeOptions};
use server::metrics::Metrics;
use server::repository;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A folder that goes with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("raddle-serve-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("the system has a folder for temporary files");
        Self(path)
    }

    /// Puts `model` of the zoo at `path`.
    pub(crate) fn zoo(&self, model: &str, path: &str) -> PathBuf {
        let file = self.0.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        zoo::write(model, &file, &ZooOptions::default()).unwrap();
        file
    }

    pub(crate) fn put(&self, path: &str, text: &str) {
        fs::create_dir_all(self.0.join(path).parent().unwrap()).unwrap();
        fs::write(self.0.join(path), text).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A server that is ready.
pub(crate) struct Server {
    pub(crate) serving: Serving,
    pub(crate) runtime: Runtime,
    pub(crate) address: SocketAddr,
}

/// Serves the repository in `folder`, once everything in it that loads has loaded.
pub(crate) async fn serve(folder: &Path, limits: HttpLimits) -> Server {
    serve_with(folder, limits, |_| {}).await
}

/// A runtime's options as the tests have them.
pub(crate) fn options(devices: Vec<Arc<dyn Device>>) -> RuntimeOptions {
    RuntimeOptions {
        devices,
        policy: Choice::named("windows").unwrap(),
        observers: Vec::new(),
        limits: Limits::default(),
        import: ImportLimits::default(),
        batch_default: 8,
        segments: SegmentOptions::default(),
        calibration: Calibration::default(),
        staging: vocab::Bytes(0),
        rules: Vec::new(),
        shelf: None,
    }
}

/// As [`serve`], with options changed.
pub(crate) async fn serve_with(
    folder: &Path,
    limits: HttpLimits,
    change: impl FnOnce(&mut RuntimeOptions),
) -> Server {
    let repository = repository::scan(folder).unwrap();
    let metrics = Arc::new(Metrics::new());
    let mut options = options(vec![Arc::new(CpuDevice::whole().unwrap())]);
    change(&mut options);
    let runtime = Runtime::start(options, repository.entries.clone(), metrics.clone()).unwrap();
    let addresses = Addresses { http: SocketAddr::from(([127, 0, 0, 1], 0)), metrics: None, exposed: false };
    let handle = runtime.handle();
    let serving =
        http::start(addresses, limits, handle.clone(), Catalog::new(&repository), metrics).await.unwrap();
    until(|| handle.readiness() != Readiness::Loading).await;
    let address = serving.addresses.http;
    Server { serving, runtime, address }
}

/// The Python that has tritonclient.
pub(crate) fn python() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let own = workspace.join(".cache/python/bin/python");
    let python = std::env::var_os("RADDLE_PYTHON").map_or(own, PathBuf::from);
    assert!(python.exists(), "{} is missing; run `cargo xtask python`", python.display());
    python
}

/// A plain request on a connection of its own, and everything that comes back.
pub(crate) fn ask(address: SocketAddr, request: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    connection.read_to_string(&mut reply).unwrap();
    reply
}

/// Looks again and again until `condition` holds; a test that hangs here has failed.
pub(crate) async fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// An infer request of one row of zeros for `model`, with `headers` added.
pub(crate) fn infer_text(handle: &Handle, model: &str, headers: &str) -> String {
    let model = handle.model(model, None).unwrap();
    let inputs = model.inputs.iter().map(|port| {
        let shape: Vec<usize> =
            port.shape.iter().map(|dim| if let Dim::Fixed(size) = dim { *size } else { 1 }).collect();
        let zeros = vec!["0"; shape.iter().product()].join(",");
        let (name, datatype) = (&port.name, port.dtype.kserve());
        format!(r#"{{"name":"{name}","datatype":"{datatype}","shape":{shape:?},"data":[{zeros}]}}"#)
    });
    let body = format!(r#"{{"inputs":[{}]}}"#, inputs.collect::<Vec<_>>().join(","));
    let (name, length) = (&model.name, body.len());
    format!(
        "POST /v2/models/{name}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    )
}
