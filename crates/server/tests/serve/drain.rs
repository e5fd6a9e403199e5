//! Going down: who is answered, who is told, and what the index says of models that never came up.

use crate::support::{Folder, ask, serve, until};
use expect_test::expect;
use server::http::HttpLimits;
use server::live::Readiness;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_server_is_not_ready_at_once_and_ends() {
    let folder = Folder::new();
    folder.zoo("tiny_mlp", "mlp.onnx");
    let server = serve(&folder.0, HttpLimits::default()).await;
    let address = server.address;
    // A request that has begun is still answered; one that has not is a closed connection.
    let mut begun = TcpStream::connect(address).unwrap();
    begun.write_all(b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n").unwrap();
    let ready = ask(address, "GET /v2/health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(ready.ends_with("{\"ready\":true}"), "{ready}");
    let handle = server.runtime.handle();
    let draining = tokio::spawn(server.serving.drain(Duration::from_secs(30)));
    until(|| handle.readiness() == Readiness::Draining).await;
    begun.write_all(b"\r\n").unwrap();
    let mut reply = String::new();
    begun.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 400 ") && reply.ends_with("{\"ready\":false}"), "{reply}");
    assert_eq!(draining.await.unwrap().cut, 0);
    assert!(TcpStream::connect(address).is_err(), "the port is still open");
    server.runtime.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_that_cannot_be_served_say_why() {
    let folder = Folder::new();
    folder.zoo("tiny_mlp", "good.onnx");
    folder.put("refused/config.pbtxt", "backend: \"pytorch\"");
    folder.put("empty/notes.txt", "");
    let server = serve(&folder.0, HttpLimits::default()).await;
    let close = "Host: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let index = ask(server.address, &format!("POST /v2/repository/index HTTP/1.1\r\n{close}"));
    let missing = ask(server.address, &format!("POST /v2/models/refused/infer HTTP/1.1\r\n{close}"));
    let shown =
        [index, missing].map(|reply| reply.split("\r\n\r\n").nth(1).unwrap_or("").to_owned() + "\n").concat();
    expect![[r#"
        [{"name":"good","version":"1","state":"READY"},{"name":"empty","version":"","state":"UNAVAILABLE","reason":"empty: there is no model.onnx and no version folder (such as 1/model.onnx); add one"},{"name":"refused","version":"","state":"UNAVAILABLE","reason":"refused/config.pbtxt: 1:1: backend \"pytorch\" is not served; what works: \"onnxruntime\" or \"onnx\" (export the model to ONNX)"}]
        {"error":"Request for unknown model: 'refused' is not found"}
    "#]].assert_eq(&shown);
    server.serving.drain(Duration::from_secs(10)).await;
    server.runtime.stop();
}
