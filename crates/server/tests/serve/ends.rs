//! Ends other than an answer, each made certain by a model that waits a minute for a fuller batch.

use crate::support::{Folder, Server, ask, infer_text, serve, until};
use expect_test::expect;
use server::http::HttpLimits;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

const WAITS: &str = "max_batch_size: 4 dynamic_batching { preferred_batch_size: 4 max_queue_delay_microseconds: 60000000 \
                     default_queue_policy { max_queue_size: 1 } }";

async fn waiting_server(folder: &Folder) -> Server {
    folder.zoo("tiny_mlp", "mlp/1/model.onnx");
    folder.put("mlp/config.pbtxt", WAITS);
    serve(&folder.0, HttpLimits::default()).await
}

/// A request that waits in the runtime.
async fn wait_in_queue(server: &Server) -> TcpStream {
    let handle = server.runtime.handle();
    let mut connection = TcpStream::connect(server.address).unwrap();
    connection.write_all(infer_text(&handle, "mlp", "").as_bytes()).unwrap();
    until(|| handle.in_flight() == 1).await;
    connection
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_cancels_its_request() {
    let folder = Folder::new();
    let server = waiting_server(&folder).await;
    let handle = server.runtime.handle();
    drop(wait_in_queue(&server).await);
    until(|| handle.in_flight() == 0).await;
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let row = "raddle_requests_total{model=\"mlp\",version=\"1\",class=\"1\",end=\"cancelled\",reason=\"client\"} 1\n";
    until(|| ask(server.address, request).contains(row)).await;
    server.serving.drain(Duration::from_secs(10)).await;
    server.runtime.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_and_a_server_out_of_time_say_so() {
    let folder = Folder::new();
    let server = waiting_server(&folder).await;
    let handle = server.runtime.handle();
    let mut waiting = wait_in_queue(&server).await;
    let full = ask(server.address, &infer_text(&handle, "mlp", "Connection: close\r\n"));
    let cut = server.serving.drain(Duration::ZERO).await.cut;
    let mut stopped = String::new();
    waiting.read_to_string(&mut stopped).unwrap();
    let told = |reply: &str| {
        let status = reply.lines().next().unwrap_or("").to_owned();
        format!("{status}\n{}\n", reply.split("\r\n\r\n").nth(1).unwrap_or(""))
    };
    expect![[r#"
        HTTP/1.1 503 Service Unavailable
        {"error":"Exceeds maximum queue size: its model's queue is full: 1 wait already"}
        HTTP/1.1 503 Service Unavailable
        {"error":"the server stopped before the answer was ready; retry on another replica"}
        cut 1
    "#]]
    .assert_eq(&format!("{}{}cut {cut}\n", told(&full), told(&stopped)));
    server.runtime.stop();
}
