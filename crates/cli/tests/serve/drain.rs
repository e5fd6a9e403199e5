//! Going down: who is still answered, who is told to go elsewhere, and what is left on disk.

use crate::support::{Folder, Reply, Server, read, replays, spans};
use std::io::Write as _;
use std::net::TcpStream;

/// What a request is told that comes too late.
const DRAINING: &str = "the server is draining and takes no new requests; retry on another replica";

/// Rows of 224 by 224 pictures of zeros for resnet18, as the whole request.
fn slow_request(rows: usize) -> Vec<u8> {
    let bytes = rows * 3 * 224 * 224 * 4;
    let json = format!(
        "{{\"inputs\":[{{\"name\":\"input\",\"datatype\":\"FP32\",\"shape\":[{rows},3,224,224],\
         \"parameters\":{{\"binary_data_size\":{bytes}}}}}]}}"
    );
    let length = json.len() + bytes;
    let head = format!(
        "POST /v2/models/resnet18/infer HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\
         Inference-Header-Content-Length: {}\r\n\r\n{json}",
        json.len()
    );
    [head.into_bytes(), vec![0; bytes]].concat()
}

/// Sends requests that together keep the server busy, and waits until the server has taken them.
fn keep_busy(server: &Server, requests: usize) -> Vec<TcpStream> {
    let one = |_| {
        let mut connection = server.connect();
        connection.write_all(&slow_request(2)).unwrap();
        connection
    };
    let busy: Vec<TcpStream> = (0..requests).map(one).collect();
    // Each is a run of its own: when half of them wait, one runs and work for a while is left.
    let mut told = String::new();
    for _ in 0..100_000 {
        told = String::from_utf8(server.get("/metrics").body).unwrap();
        let waiting = told.lines().filter(|line| line.starts_with("nv_inference_pending_request_count{"));
        let count: f64 = waiting.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum();
        if count >= requests as f64 / 2.0 {
            return busy;
        }
    }
    panic!("the server never had {requests} requests:\n{told}");
}

/// The same first half of a request on several connections.
fn begun(server: &Server, half: &[u8]) -> Vec<TcpStream> {
    let one = |_| {
        let mut connection = server.connect();
        connection.write_all(half).unwrap();
        connection
    };
    (0..6).map(one).collect()
}

/// The replies to the other half. A connection of which the server had read nothing when the signal came was idle to it,
/// and is closed; at least one is answered.
fn ended(connections: Vec<TcpStream>, half: &[u8]) -> Vec<Reply> {
    let one = |mut connection: TcpStream| {
        connection.write_all(half).ok()?;
        read(&mut connection)
    };
    let replies: Vec<Reply> = connections.into_iter().filter_map(one).collect();
    assert!(!replies.is_empty(), "no request that had begun was answered");
    replies
}

fn serve(folder: &Folder) -> Server {
    folder.zoo(&["resnet18"]);
    let (journal, timeline) = (folder.path("journal"), folder.path("timeline.json"));
    // One request a run, so that the work is long.
    let files = ["--journal", &journal, "--timeline", &timeline];
    // However busy the machine is, the work is over before the drain's own limit.
    let arguments = [&["--max-batch-size", "2", "--exit-timeout-secs", "600"][..], &files].concat();
    Server::start(&folder.0, &arguments)
}

#[test]
fn a_terminated_server_answers_what_it_has_taken_and_nothing_else() {
    let folder = Folder::new();
    let mut server = serve(&folder);
    let busy = keep_busy(&server, 6);
    // Requests that have only begun when the signal comes.
    let ready = begun(&server, b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n");
    let model_ready = begun(&server, b"GET /v2/models/resnet18/ready HTTP/1.1\r\nHost: x\r\n");
    let late = slow_request(1);
    let infer = begun(&server, &late[..late.len() / 2]);
    // Connections are accepted in order: when this one is answered, those have been.
    server.get("/metrics");
    server.terminate();
    server.until("draining for up to");
    for reply in ended(ready, b"\r\n") {
        assert_eq!((reply.status, reply.json()["ready"].as_bool()), (400, Some(false)), "{reply:?}");
    }
    for reply in ended(model_ready, b"\r\n") {
        assert_eq!(reply.status, 400);
    }
    for reply in ended(infer, &late[late.len() / 2..]) {
        assert_eq!(reply.status, 503, "{reply:?}");
        assert_eq!(reply.error(), DRAINING);
    }
    assert!(TcpStream::connect(server.address).is_err(), "new connections are still taken");
    assert!(server.runs(), "the server ended before it had answered");
    let mut answered = 0;
    for mut connection in busy {
        let reply = read(&mut connection).unwrap();
        if reply.status == 503 {
            // It had not been read to its end when the signal came.
            assert_eq!(reply.error(), DRAINING);
            continue;
        }
        assert_eq!(reply.status, 200, "{}", reply.head);
        assert_eq!(reply.json()["outputs"][0]["data"].as_array().unwrap().len(), 2_000);
        answered += 1;
    }
    // Those that waited when the signal came, at least.
    assert!(answered >= 3, "only {answered} were answered");
    let status = server.wait();
    assert_eq!(status.code(), Some(0), "{}", server.log());
    replays(&folder.path("journal"));
    assert!(spans(&folder.path("timeline.json")) > 6);
}

#[test]
fn a_second_signal_ends_the_server_at_once() {
    let folder = Folder::new();
    let mut server = serve(&folder);
    let busy = keep_busy(&server, 12);
    server.terminate();
    server.until("draining for up to");
    server.terminate();
    let status = server.wait();
    assert_eq!(status.code(), Some(0), "{}", server.log());
    assert!(server.log().contains("second signal: stopping at once"), "{}", server.log());
    let answered = busy.into_iter().filter_map(|mut connection| read(&mut connection));
    let answered = answered.filter(|reply| reply.status == 200).count();
    assert!(answered < 12, "everything was answered before the end");
    replays(&folder.path("journal"));
    spans(&folder.path("timeline.json"));
}

#[test]
fn a_server_that_still_loads_ends_without_loading_the_rest() {
    let folder = Folder::new();
    folder.zoo(&["resnet18", "mobilenet_v2", "squeezenet1_0", "tiny_mlp"]);
    let mut server = Server::launch(&folder.0, &[]);
    assert_eq!(server.get("/v2/health/live").status, 200);
    assert_eq!(server.get("/v2/health/ready").status, 400);
    server.terminate();
    assert_eq!(server.wait().code(), Some(0), "{}", server.log());
    // It comes last by name, and nothing is quicker to load.
    assert!(!server.log().contains("model tiny_mlp version 1 ready"), "{}", server.log());
}
