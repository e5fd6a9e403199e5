//! Hostile requests: each is told what is wrong with it, nothing is held for it, and the next good one is answered.

use crate::support::{Folder, Reply, Server, python, read};
use expect_test::expect;
use std::io::Write as _;
use std::net::Shutdown;

/// Largest body of these servers.
const BODY_MAX: usize = 8 << 20;
/// Where the sum model of `e2e_files.py` is asked.
const INFER: &str = "/v2/models/sum/infer";

struct Subject {
    server: Server,
    _folder: Folder,
    /// The most memory the server had before anything hostile was sent.
    memory: u64,
}

/// A server of y = x + [1,2,3,4].
fn serve() -> Subject {
    let folder = Folder::new();
    folder.put("secret.bin", [7; 64]);
    let made = Folder::new();
    python("tests/python/e2e_files.py", &[&made.path(""), &folder.path("secret.bin")]);
    folder.put("repository/sum.onnx", std::fs::read(made.0.join("sum/1/model.onnx")).unwrap());
    let limit = BODY_MAX.to_string();
    let arguments = ["--http-max-input-size", &limit, "--http-read-timeout-secs", "1"];
    let server = Server::start(&folder.0.join("repository"), &arguments);
    let subject = Subject { memory: 0, server, _folder: folder };
    subject.still_right();
    Subject { memory: subject.server.memory_peak(), ..subject }
}

impl Subject {
    /// Asks a question whose answer is known.
    fn still_right(&self) {
        let reply = self.server.post(INFER, &question("[1,4]", "[1,1,1,1]"));
        assert_eq!(
            (reply.status, reply.json()["outputs"][0]["data"].to_string().as_str()),
            (200, "[2.0,3.0,4.0,5.0]")
        );
    }

    /// Ends the test: the server is as it was, and never held more than a few bodies of the largest size.
    fn end(self) {
        self.still_right();
        let grown = self.server.memory_peak().saturating_sub(self.memory);
        // The body, its tensors and their answers, each at most once at a time, and as much again for the allocator.
        assert!(grown < 6 * BODY_MAX as u64, "memory grew by {grown} bytes");
        self.server.stop();
    }

    /// Posts each body and lists what came of it, a line each.
    fn told(&self, cases: &[(&str, String)]) -> String {
        let line = |(name, body): &(&str, String)| told(name, &self.server.post(INFER, body));
        cases.iter().map(line).collect()
    }
}

fn question(shape: &str, data: &str) -> String {
    format!("{{\"inputs\":[{{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":{shape},\"data\":{data}}}]}}")
}

fn told(name: &str, reply: &Reply) -> String {
    let text =
        if reply.status == 200 { String::from_utf8_lossy(&reply.body).into_owned() } else { reply.error() };
    format!("{name}: {} {text}\n", reply.status)
}

/// A request whose tensor of `shape` is binary, with more after the inputs; its header line and its body.
fn binary(shape: &str, claimed: usize, more: &str, values: &[f32]) -> (String, Vec<u8>) {
    let json = format!(
        "{{\"inputs\":[{{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":{shape},\
         \"parameters\":{{\"binary_data_size\":{claimed}}}}}]{more}}}"
    );
    let header = format!("Inference-Header-Content-Length: {}\r\n", json.len());
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    (header, json.into_bytes().into_iter().chain(bytes).collect())
}

#[test]
fn json_that_is_no_request_is_told_so() {
    let subject = serve();
    let good = question("[1,4]", "[1,1,1,1]");
    let deep = |prefix: &str| format!("{prefix}{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let cases = [
        ("nothing", String::new()),
        ("null", "null".into()),
        ("truncated", good[..good.len() - 3].to_owned()),
        ("followed by more", format!("{good}{good}")),
        ("10,000 deep", deep("")),
        ("10,000 deep inside", format!("{{\"inputs\":{}}}", deep(""))),
        ("10,000 deep data", question("[1,4]", &deep(""))),
        ("nested data", question("[1,4]", "[[1,1],[1,1]]")),
        ("too few elements", question("[1,4]", "[1]")),
        ("too many elements", question("[1,4]", "[1,1,1,1,1]")),
        ("negative dimension", question("[1,-4]", "[1,1,1,1]")),
        ("dimensions that overflow", question("[4611686018427387904,4611686018427387904]", "[1]")),
        ("a dimension that overflows", question("[1,18446744073709551617]", "[1]")),
        ("no rows", question("[0,4]", "[]")),
        ("more rows than a batch", question("[9,4]", "[1]")),
        ("40 dimensions", question(&format!("[{}1]", "1,".repeat(39)), "[1]")),
        ("fractional dimension", question("[1,4.5]", "[1,1,1,1]")),
        ("NaN", question("[1,4]", "[NaN,1,1,1]")),
        ("beyond FP32", question("[1,4]", "[1e999,1,1,1]")),
        ("text for a number", question("[1,4]", "[\"1\",1,1,1]")),
        ("no such type", good.replace("FP32", "FP128")),
        ("another type", good.replace("FP32", "INT64")),
        ("another name", good.replace("\"x\"", "\"y\"")),
        (
            "shared memory",
            good.replace("\"data\":[1,1,1,1]", "\"parameters\":{\"shared_memory_region\":\"a\"}"),
        ),
    ];
    expect![[r#"
        nothing: 400 failed to parse the request JSON buffer: EOF while parsing a value at line 1 column 0
        null: 400 failed to parse the request JSON buffer: invalid type: null, expected an object at line 1 column 4
        truncated: 400 failed to parse the request JSON buffer: EOF while parsing an object at line 1 column 71
        followed by more: 400 failed to parse the request JSON buffer: trailing characters at line 1 column 75
        10,000 deep: 400 the request JSON is nested deeper than 64 levels
        10,000 deep inside: 400 the request JSON is nested deeper than 64 levels
        10,000 deep data: 400 the request JSON is nested deeper than 64 levels
        nested data: 200 {"model_name":"sum","model_version":"1","outputs":[{"name":"y","datatype":"FP32","shape":[1,4],"data":[2.0,3.0,4.0,5.0]}]}
        too few elements: 400 input 'x' has 1 elements in "data", its shape [1,4] needs 4
        too many elements: 400 input 'x' has more than 4 elements in "data", its shape [1,4] needs 4
        negative dimension: 400 input 'x' has shape [1,-4]: dimensions must be 0 or more and their product must fit memory
        dimensions that overflow: 400 unexpected shape for input 'x' for model 'sum'. Expected [-1,4], got [4611686018427387904,4611686018427387904]
        a dimension that overflows: 400 failed to parse the request JSON buffer: invalid type: floating point `1.8446744073709552e+19`, expected i64 at line 1 column 72
        no rows: 400 inference request batch-size must be at least 1 for 'sum'
        more rows than a batch: 400 inference request batch-size must be <= 4 for 'sum'
        40 dimensions: 400 failed to parse the request JSON buffer: the list has more than 32 entries at line 1 column 116
        fractional dimension: 400 failed to parse the request JSON buffer: invalid type: floating point `4.5`, expected i64 at line 1 column 55
        NaN: 400 failed to parse the request JSON buffer: expected value at line 1 column 64
        beyond FP32: 400 input 'x' element 0: 1e999 is not a finite FP32
        text for a number: 400 input 'x' element 0: "1",1,1,1] is not a finite FP32
        no such type: 400 input 'x' has unknown data-type 'FP128'; use BOOL, UINT8 to UINT64, INT8 to INT64, FP16, FP32 or FP64
        another type: 400 inference input 'x' data-type is 'INT64', but model 'sum' expects 'FP32'
        another name: 400 unexpected inference input 'y' for model 'sum'
        shared memory: 400 'x' is in shared memory, which this server does not take; send the tensor in the request
    "#]].assert_eq(&subject.told(&cases));
    subject.end();
}

#[test]
fn binary_sizes_must_add_up() {
    let subject = serve();
    let ones = [1.0_f32; 4];
    let row = |claimed, values: &[f32]| binary("[1,4]", claimed, "", values);
    let cases = [
        ("good", row(16, &ones)),
        ("shorter than claimed", row(16, &ones[..3])),
        ("longer than claimed", row(16, &[1.0; 5])),
        ("claim beyond the shape", row(20, &[1.0; 5])),
        ("claim of everything", row(usize::MAX, &ones)),
        ("rows that overflow", binary("[4611686018427387904,4]", 16, "", &ones)),
    ];
    let mut lines = String::new();
    for (name, (header, body)) in cases {
        lines += &told(name, &subject.server.post_bytes(INFER, &header, &body).unwrap());
    }
    for (name, length) in
        [("header beyond the body", "999999"), ("negative header", "-1"), ("no number", "0x10")]
    {
        let header = format!("Inference-Header-Content-Length: {length}\r\n");
        let good = question("[1,4]", "[1,1,1,1]");
        lines += &told(name, &subject.server.post_bytes(INFER, &header, good.as_bytes()).unwrap());
    }
    expect![[r#"
        good: 200 {"model_name":"sum","model_version":"1","outputs":[{"name":"y","datatype":"FP32","shape":[1,4],"data":[2.0,3.0,4.0,5.0]}]}
        shorter than claimed: 400 input 'x' claims 16 bytes of binary data, the body has 12 left
        longer than claimed: 400 the body has 4 bytes after the last input; "binary_data_size" values must add up to its length
        claim beyond the shape: 400 [request id: <id_unknown>] input byte size mismatch for input 'x' for model 'sum'. Expected 16, got 20
        claim of everything: 400 input 'x' claims 18446744073709551615 bytes of binary data, the body has 16 left
        rows that overflow: 400 input 'x' has shape [4611686018427387904,4]: dimensions must be 0 or more and their product must fit memory
        header beyond the body: 400 Inference-Header-Content-Length is 999999, the body has 74 bytes
        negative header: 400 Inference-Header-Content-Length must be a whole number of bytes, 0 or more
        no number: 400 Inference-Header-Content-Length must be a whole number of bytes, 0 or more
    "#]].assert_eq(&lines);
    subject.end();
}

#[test]
fn not_a_number_passes_through_as_bytes_and_is_refused_as_json() {
    let subject = serve();
    let values = [f32::NAN, f32::INFINITY, -0.0, f32::MIN_POSITIVE];
    let (header, body) = binary("[1,4]", 16, ",\"parameters\":{\"binary_data_output\":true}", &values);
    let reply = subject.server.post_bytes(INFER, &header, &body).unwrap();
    assert_eq!(reply.status, 200, "{reply:?}");
    let answer: Vec<f32> = reply.body[reply.body.len() - 16..]
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    assert!(answer[0].is_nan(), "{answer:?}");
    assert_eq!(answer[1..], [f32::INFINITY, 3.0, 4.0]);
    let (header, body) = binary("[1,4]", 16, "", &values);
    let refused = subject.server.post_bytes(INFER, &header, &body).unwrap();
    expect![[r#"
        NaN as JSON: 400 output 'y' element 0 is NaN, which JSON cannot carry; ask for binary output ("binary_data": true)
    "#]].assert_eq(&told("NaN as JSON", &refused));
    subject.end();
}

#[test]
fn methods_paths_and_encodings_have_their_own_status() {
    let subject = serve();
    let mut lines = String::new();
    let calls = [
        ("GET", INFER),
        ("PUT", INFER),
        ("DELETE", "/v2/models/sum"),
        ("POST", "/v2/health/live"),
        ("TRACE", "/v2"),
        ("BREW", "/v2"),
        ("OPTIONS", "*"),
        ("CONNECT", "elsewhere:80"),
        ("GET", "/"),
        ("GET", "//v2"),
        ("GET", "/v2/models/../../etc/passwd"),
        ("GET", "/v2/models/sum/versions/-1"),
        ("GET", "/v2/models/sum/versions/+1"),
        ("GET", "/v2/models/sum/versions/99999999999999999999"),
        ("GET", "/v2/models/%ff"),
        ("POST", "/v2/models/nobody/infer"),
        ("POST", "/v2/repository/models/sum/load"),
    ];
    for (method, path) in calls {
        let reply = subject.server.ask(format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        ));
        lines += &told(&format!("{method} {path}"), &reply.unwrap());
    }
    let good = question("[1,4]", "[1,1,1,1]");
    for encoding in ["gzip", "deflate", "br", "gzip, identity"] {
        let header = format!("Content-Encoding: {encoding}\r\n");
        lines += &told(encoding, &subject.server.post_bytes(INFER, &header, good.as_bytes()).unwrap());
    }
    expect![[r#"
        GET /v2/models/sum/infer: 405 Method Not Allowed
        PUT /v2/models/sum/infer: 405 Method Not Allowed
        DELETE /v2/models/sum: 405 Method Not Allowed
        POST /v2/health/live: 405 Method Not Allowed
        TRACE /v2: 405 Method Not Allowed
        BREW /v2: 405 Method Not Allowed
        OPTIONS *: 404 Not Found
        CONNECT elsewhere:80: 404 Not Found
        GET /: 404 Not Found
        GET //v2: 404 Not Found
        GET /v2/models/../../etc/passwd: 404 Not Found
        GET /v2/models/sum/versions/-1: 404 Request for unknown model: 'sum' version -1 is not found
        GET /v2/models/sum/versions/+1: 404 Request for unknown model: 'sum' version +1 is not found
        GET /v2/models/sum/versions/99999999999999999999: 404 Request for unknown model: 'sum' version 99999999999999999999 is not found
        GET /v2/models/%ff: 400 the path is not valid UTF-8
        POST /v2/models/nobody/infer: 404 Request for unknown model: 'nobody' is not found
        POST /v2/repository/models/sum/load: 404 Not Found
        gzip: 415 compressed request bodies are not taken yet; send the body without Content-Encoding
        deflate: 415 compressed request bodies are not taken yet; send the body without Content-Encoding
        br: 415 compressed request bodies are not taken yet; send the body without Content-Encoding
        gzip, identity: 415 compressed request bodies are not taken yet; send the body without Content-Encoding
    "#]].assert_eq(&lines);
    subject.end();
}

#[test]
fn bodies_beyond_the_limit_are_never_held() {
    let subject = serve();
    let large = vec![b' '; 100 << 20];
    let reply = subject.server.post_bytes(INFER, "", &large).unwrap();
    expect![[r#"
        100 MiB: 413 the request body is larger than 8388608 bytes; send fewer rows or raise --http-max-input-size
    "#]].assert_eq(&told("100 MiB", &reply));
    // Without a length the server has to count.
    let mut connection = subject.server.connect();
    let head = format!(
        "POST {INFER} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).unwrap();
    let chunk = [b"100000\r\n", &large[..1 << 20], b"\r\n"].concat();
    for _ in 0..32 {
        // It may hang up as soon as it has seen enough.
        if connection.write_all(&chunk).is_err() {
            break;
        }
    }
    let _ = connection.write_all(b"0\r\n\r\n");
    assert_eq!(read(&mut connection).unwrap().status, 413);
    drop(large);
    subject.end();
}

#[test]
fn clients_that_stop_talking_are_let_go() {
    let subject = serve();
    let head = |length: usize| {
        format!("POST {INFER} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n")
    };
    let open = |text: String| {
        let mut connection = subject.server.connect();
        connection.write_all(text.as_bytes()).unwrap();
        connection
    };
    let mut slow: Vec<_> = (0..16).map(|_| open(format!("{}{{", head(500)))).collect();
    let mut slow_header = open(format!("POST {INFER} HTTP/1.1\r\nHo"));
    let mut gone = open(format!("{}{{", head(500)));
    gone.shutdown(Shutdown::Write).unwrap();
    // None of them holds up anybody else.
    subject.still_right();
    assert!(read(&mut gone).is_none_or(|reply| reply.status == 400));
    let texts = slow.iter_mut().map(|connection| told("slow body", &read(connection).unwrap()));
    let texts: std::collections::BTreeSet<String> = texts.collect();
    expect![[r#"
        slow body: 408 the request body did not arrive within 1 s
    "#]]
    .assert_eq(&texts.into_iter().collect::<String>());
    // A header that never ends is cut off, with or without a word.
    assert!(read(&mut slow_header).is_none_or(|reply| reply.status == 408));
    for bytes in
        [&b"\0\x01\x02\x03\r\n\r\n"[..], b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"]
    {
        assert!(subject.server.ask(bytes).is_none_or(|reply| reply.status == 400));
    }
    let header = format!("GET /v2 HTTP/1.1\r\nHost: x\r\nA: {}\r\n\r\n", "a".repeat(1 << 20));
    assert!(subject.server.ask(header).is_none_or(|reply| reply.status == 431));
    subject.end();
}
