//! tritonclient against every shape of model: with and without a batch, with and without a configuration.

use crate::support::{Folder, python, serve};
use server::http::HttpLimits;
use std::path::Path;
use std::process::Command;

/// Runs `tests/python/client_http.py`; what it prints is the failure's text.
fn client(arguments: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/client_http.py");
    let output = Command::new(python()).arg(script).args(arguments).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}\n{told}{errors}");
    assert!(told.lines().filter(|line| line.starts_with("ok ")).count() > 20, "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tritonclient_sees_triton() {
    let folder = Folder::new();
    folder.zoo("tiny_cnn", "bare.onnx");
    folder.zoo("tiny_mlp", "mlp/3/model.onnx");
    folder.put(
        "mlp/config.pbtxt",
        "max_batch_size: 4 dynamic_batching { priority_levels: 2 default_priority_level: 2 }",
    );
    folder.zoo("tiny_transformer", "text/1/model.onnx");
    folder.put("text/config.pbtxt", "max_batch_size: 0");
    folder.put("broken/1/model.onnx", "not a model");
    folder.put("refused/config.pbtxt", "backend: \"pytorch\"");
    let server = serve(&folder.0, HttpLimits::default()).await;
    let url = server.address.to_string();
    let files = [("bare", "bare.onnx"), ("mlp", "mlp/3/model.onnx"), ("text", "text/1/model.onnx")];
    let runs = files.map(|(model, file)| {
        let (url, file) = (url.clone(), folder.0.join(file).display().to_string());
        tokio::task::spawn_blocking(move || client(&[&url, model, "--onnx", &file, "--free-size", "1"]))
    });
    for run in runs {
        run.await.unwrap();
    }
    server.serving.drain(std::time::Duration::from_secs(10)).await;
    server.runtime.stop();
}
