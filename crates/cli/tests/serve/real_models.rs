//! Model files that other people made, served without a word of configuration, against onnxruntime on fresh inputs.

use crate::support::{Folder, Server, in_state, models, python};
use std::time::{SystemTime, UNIX_EPOCH};

/// Serves `names` and compares their answers to inputs nobody has seen before.
fn compare(names: &[&str], unserved: &[&str], arguments: &[&str]) -> Server {
    let folder = Folder::new();
    folder.models(&[names, unserved].concat());
    let server = Server::start(&folder.0, arguments);
    let index = server.index();
    let ready = in_state(&index, "READY");
    assert!(names.iter().all(|name| ready.contains(*name)) && ready.len() == names.len(), "{index:?}");
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros().to_string();
    let (url, models) = (server.url(), models().display().to_string());
    let told = python("tests/python/e2e_models.py", &[&[url.as_str(), &models, &seed], names].concat());
    assert_eq!(told.lines().filter(|line| line.starts_with("ok ")).count(), names.len(), "{told}");
    server
}

#[test]
fn everyday_models_answer_as_onnxruntime_does() {
    let names =
        ["magika", "mtcnn_onet", "mtcnn_pnet", "mtcnn_rnet", "ocr_cls", "ocr_det", "ocr_rec", "yolo_320n"];
    let server = compare(&names, &["silero_vad"], &["--max-batch-size", "3"]);
    // Branches of different shapes cannot be cut into segments; the others are served all the same.
    let index = server.index();
    let (_, state, reason) = index.iter().find(|(name, ..)| name == "silero_vad").unwrap();
    assert_eq!(state, "UNAVAILABLE");
    assert!(reason.contains("If"), "{reason}");
    let reply = server.post("/v2/models/silero_vad/infer", "{\"inputs\":[]}");
    assert_eq!(reply.status, 503, "{reply:?}");
    assert!(reply.error().contains(reason), "{reply:?}");
    server.stop();
}

#[test]
fn networks_of_the_onnx_project_answer_as_onnxruntime_does() {
    let names = [
        "light_densenet121",
        "light_inception_v1",
        "light_inception_v2",
        "light_resnet50",
        "light_shufflenet",
        "light_squeezenet",
    ];
    compare(&names, &[], &["--max-batch-size", "2"]).stop();
}

#[test]
fn large_networks_answer_as_onnxruntime_does() {
    let names = ["light_bvlc_alexnet", "light_vgg19", "light_zfnet512"];
    compare(&names, &[], &["--max-batch-size", "1"]).stop();
}
