//! A repository full of hostile files: each is refused with its reason, and the good ones beside them are served.

use crate::support::{Folder, Server, in_state, python};
use expect_test::{Expect, expect};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

/// Memory a server of tiny models needs at most, whatever the files claim.
const MEMORY: u64 = 512 << 20;

/// The index as lines, without what differs from machine to machine.
fn shown(server: &Server, folder: &Folder) -> String {
    let mut lines = String::new();
    for (name, state, reason) in server.index() {
        let name = if name.len() > 40 { format!("{}… ({} letters)", &name[..8], name.len()) } else { name };
        let reason = reason.replace(&folder.path(""), "FOLDER/");
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        lines.push_str(&format!("{name} {state}{reason}\n"));
    }
    lines
}

/// The sum model's answer for a row of twos.
fn sums(server: &Server, model: &str) -> Vec<f64> {
    let body = r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[2,2,2,2]}]}"#;
    let reply = server.post(&format!("/v2/models/{model}/infer"), body).json();
    let data = reply["outputs"][0]["data"].as_array().unwrap_or_else(|| panic!("{reply}"));
    data.iter().map(|value| value.as_f64().unwrap()).collect()
}

fn check(server: &Server, folder: &Folder, expected: &Expect) {
    expected.assert_eq(&shown(server, folder));
    assert!(server.memory_peak() < MEMORY, "{} bytes", server.memory_peak());
}

#[test]
fn weights_are_read_from_the_models_own_folder_only() {
    let outside = Folder::new();
    outside.put("secret.bin", [7; 64]);
    let folder = Folder::new();
    python("tests/python/e2e_files.py", &[&folder.path(""), &outside.path("secret.bin")]);
    let server = Server::start(&folder.0, &[]);
    let told = shown(&server, &folder).replace(&outside.path(""), "OUTSIDE/");
    expect![[r#"
        absolute UNAVAILABLE: 1 problem: tensor "w": external data at "OUTSIDE/secret.bin" is absolute; it must lie in the model's folder
        beside READY
        beyond_end UNAVAILABLE: 1 problem: tensor "w": external data runs past the end of "weights.bin": 16 bytes at 8 of 16
        dotdot UNAVAILABLE: 1 problem: tensor "w": external data at "../../../../../../../../../../../../../../../../../../../../../../../../../../../../../../../..OUTSIDE/secret.bin" leaves the model's folder
        dotdot_within UNAVAILABLE: 1 problem: tensor "w": external data at "../1/weights.bin" leaves the model's folder
        folder_link UNAVAILABLE: 1 problem: tensor "w": external data at "data/secret.bin" goes through something that is no folder
        huge_claim UNAVAILABLE: 1 problem: tensor "w": has 16 bytes, its dimensions [1099511627776, 4] need 17592186044416
        huge_external UNAVAILABLE: 1 problem: tensor "w": external data exceeds what is left of the limit, 64.0 GiB; raise the limit if you trust the file
        link UNAVAILABLE: 1 problem: tensor "w": external data at "weights.bin" goes through a symbolic link
        missing UNAVAILABLE: 1 problem: tensor "w": external data at "nowhere.bin" cannot be opened: ENOENT: No such file or directory
        negative_dims UNAVAILABLE: 2 problems: tensor "w": external data belongs to a tensor without a definite size; tensor "w": has the negative dimension -4
        overflowing_dims UNAVAILABLE: 2 problems: tensor "w": external data belongs to a tensor without a definite size; tensor "w": has more elements than memory can hold: [4611686018427387904, 4611686018427387904]
        sum READY
    "#]].assert_eq(&told);
    assert_eq!(sums(&server, "sum"), [3.0, 4.0, 5.0, 6.0]);
    assert_eq!(sums(&server, "beside"), [2.0, 3.0, 4.0, 5.0]);
    assert!(server.memory_peak() < MEMORY, "{} bytes", server.memory_peak());
    server.stop();
}

#[test]
fn damaged_files_are_refused_with_a_reason_each() {
    let folder = Folder::new();
    folder.zoo(&["tiny_cnn"]);
    let good = fs::read(folder.0.join("tiny_cnn/1/model.onnx")).unwrap();
    folder.put("empty.onnx", "");
    folder.put("text.onnx", "this is not a model\n");
    folder.put("half.onnx", &good[..good.len() / 2]);
    folder.put("without_its_end.onnx", &good[..good.len() - 1]);
    folder.put("followed_by_zeros.onnx", [good.as_slice(), &[0; 64]].concat());
    folder.put("twice.onnx", [good.as_slice(), &good].concat());
    // Random but the same in every run.
    let mut state = 0x9e37_79b9_u32;
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    };
    folder.put("noise.onnx", (0..4_096).map(|_| noise()).collect::<Vec<u8>>());
    // A length of nearly 2^63 bytes for the graph.
    folder.put("long.onnx", [&[0x3a][..], &[0xff; 8], &[0x7f]].concat());
    folder.put("nested.onnx", [0x3a, 0x7f].repeat(50_000));
    let server = Server::start(&folder.0, &[]);
    check(
        &server,
        &folder,
        &expect![[r#"
        empty UNAVAILABLE: 1 problem: the file holds no graph; export it again
        followed_by_zeros UNAVAILABLE: not an ONNX file, or damaged; export it again
        half UNAVAILABLE: not an ONNX file, or damaged; export it again
        long UNAVAILABLE: not an ONNX file, or damaged; export it again
        nested UNAVAILABLE: not an ONNX file, or damaged; export it again
        noise UNAVAILABLE: not an ONNX file, or damaged; export it again
        text UNAVAILABLE: not an ONNX file, or damaged; export it again
        tiny_cnn READY
        twice UNAVAILABLE: 28 problems: "conv1.weight" is written more than once, last by node "(a constant)"; "bn1.weight" is written more than once, last by node "(a constant)"; "bn1.bias" is written more than once, last by node "(a constant)"; "bn1.running_mean" is written more than once, last by node "(a constant)"; "bn1.running_var" is written more than once, last by node "(a constant)"; "conv2.weight" is written more than once, last by node "(a constant)"; "conv2.bias" is written more than once, last by node "(a constant)"; "conv3.weight" is written more than once, last by node "(a constant)"; "bn3.weight" is written more than once, last by node "(a constant)"; "bn3.bias" is written more than once, last by node "(a constant)"; "bn3.running_mean" is written more than once, last by node "(a constant)"; "bn3.running_var" is written more than once, last by node "(a constant)"; "fc.weight" is written more than once, last by node "(a constant)"; "fc.bias" is written more than once, last by node "(a constant)"; "conv1" is written more than once, last by node "conv1"; "bn1" is written more than once, last by node "bn1"; "relu1" is written more than once, last by node "relu1"; "conv2" is written more than once, last by node "conv2"; "relu2" is written more than once, last by node "relu2"; "conv3" is written more than once, last by node "conv3"; "bn3" is written more than once, last by node "bn3"; "add" is written more than once, last by node "add"; "relu3" is written more than once, last by node "relu3"; "pool" is written more than once, last by node "pool"; "pool.flatten" is written more than once, last by node "pool.flatten"; "logits" is written more than once, last by node "fc"; input "input": is listed twice; output "logits": is listed twice
        without_its_end UNAVAILABLE: not an ONNX file, or damaged; export it again
    "#]],
    );
    server.stop();
}

/// Bytes of a good file changed one at a time: whatever comes of it, a reason or a model, nothing else suffers.
#[test]
fn flipped_bytes_never_bring_the_server_down() {
    let folder = Folder::new();
    folder.zoo(&["tiny_mlp"]);
    let good = fs::read(folder.0.join("tiny_mlp/1/model.onnx")).unwrap();
    let structure = good.len().min(600);
    for (count, at) in
        (0..structure).step_by(structure / 40).chain([good.len() - 40, good.len() - 1]).enumerate()
    {
        for (kind, mask) in [("low", 0x01), ("high", 0x80), ("all", 0xff)] {
            let mut bytes = good.clone();
            bytes[at] ^= mask;
            folder.put(&format!("flip_{count:02}_{kind}.onnx"), bytes);
        }
    }
    let server = Server::start(&folder.0, &["--max-batch-size", "1"]);
    let index = server.index();
    let refused = in_state(&index, "UNAVAILABLE");
    assert_eq!(in_state(&index, "READY").len() + refused.len(), index.len(), "{index:?}");
    assert!(refused.len() > 10, "{index:?}");
    assert!(index.iter().all(|(_, state, reason)| state == "READY" || !reason.is_empty()), "{index:?}");
    assert!(in_state(&index, "READY").contains("tiny_mlp"), "{index:?}");
    assert!(server.memory_peak() < MEMORY, "{} bytes", server.memory_peak());
    server.stop();
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let outside = Folder::new();
    outside.zoo(&["tiny_mlp"]);
    let model = outside.0.join("tiny_mlp/1/model.onnx");
    let folder = Folder::new();
    let here = |name: &OsStr| folder.0.join(name);
    let copy = |name: &OsStr| assert!(fs::copy(&model, here(name)).is_ok());
    copy(OsStr::new(".hidden.onnx"));
    copy(OsStr::new("stats.onnx"));
    copy(OsStr::new("good.onnx"));
    copy(OsStr::new("two words.onnx"));
    copy(OsStr::new("newline\n.onnx"));
    copy(OsStr::from_bytes(b"not_utf8_\xff\xfe.onnx"));
    copy(OsStr::new(&format!("{}.onnx", "n".repeat(250))));
    symlink(&model, here(OsStr::new("link.onnx"))).unwrap();
    symlink(outside.0.join("tiny_mlp"), here(OsStr::new("folder_link"))).unwrap();
    symlink(here(OsStr::new("loop")), here(OsStr::new("loop"))).unwrap();
    symlink("good.onnx", here(OsStr::new("link_within.onnx"))).unwrap();
    let mut server = Server::start(&folder.0, &[]);
    check(
        &server,
        &folder,
        &expect![[r#"
        good READY
        link_within READY
        nnnnnnnn… (250 letters) READY
        stats UNAVAILABLE: stats.onnx: no model can be called stats: /v2/models/stats is the statistics of all; rename it
    "#]],
    );
    // Problems of what has no valid name are in the log alone.
    let log = server.log().to_owned();
    for name in ["two words.onnx", "newline", "not_utf8_", "link.onnx", "folder_link", "loop"] {
        assert!(
            log.lines().any(|line| line.contains("ERROR") && line.contains(name)),
            "{name} is not in\n{log}"
        );
    }
    // Over the network a name is a name, never a path.
    let long = "n".repeat(300);
    let hostile =
        ["..%2fgood", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", ".hidden", "good%00", "GOOD", "two%20words", &long];
    for name in hostile {
        let reply = server.post(&format!("/v2/models/{name}/infer"), "{}");
        assert_eq!(reply.status, 404, "{name}: {reply:?}");
        assert!(reply.error().contains("unknown model"), "{name}: {reply:?}");
        assert!(reply.body.len() < 1_000, "{name}: {reply:?}");
    }
    assert_eq!(server.get("/v2/models/good/ready").status, 200);
    server.stop();
}
