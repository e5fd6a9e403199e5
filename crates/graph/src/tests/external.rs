//! External data: every trick that must not open a file.

use super::Onnx;
use crate::{ImportLimits, Model};
use expect_test::{Expect, expect};
use prost::Message;
use std::fs;
use std::path::{Path, PathBuf};
use tract_onnx::pb::{StringStringEntryProto, TensorProto};
use vocab::Bytes;

/// A folder of its own for a test, removed when the test passes.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("raddle-graph-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays behind harms nobody; a panic while another unwinds would.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A model whose weight, four floats, lies where `entries` say.
fn model(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "4"]).node("Add", &["x", "w"], "y").output("y");
    let entry =
        |(key, value): &(&str, &str)| StringStringEntryProto { key: (*key).into(), value: (*value).into() };
    onnx.graph.initializer.push(TensorProto {
        name: "w".to_owned(),
        dims: vec![4],
        data_type: 1,
        data_location: Some(1),
        external_data: entries.iter().map(entry).collect(),
        ..TensorProto::default()
    });
    onnx.proto().encode_to_vec()
}

const DATA: [u8; 24] = [9, 9, 9, 9, 0, 0, 128, 63, 0, 0, 0, 64, 0, 0, 64, 64, 0, 0, 128, 64, 9, 9, 9, 9];

fn import(path: &Path) -> String {
    match Model::import("m", path, &ImportLimits::default()) {
        Ok(_) => "imported".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn check(folder: &Folder, entries: &[(&str, &str)], expected: &Expect) {
    expected.assert_eq(&import(&folder.file("model.onnx", &model(entries))));
}

#[test]
fn data_is_read_from_the_model_s_folder() {
    let folder = Folder::new("plain");
    folder.file("sub/weights.bin", &DATA);
    for location in ["sub/weights.bin", "./sub/./weights.bin", "sub//weights.bin"] {
        let bytes = model(&[("location", location), ("offset", "4"), ("length", "16")]);
        let path = folder.file("model.onnx", &bytes);
        let model = Model::import("m", &path, &ImportLimits::default()).unwrap();
        let graph = model.at(&crate::Sizes::batch(1)).unwrap();
        let weight = graph.constant(graph.weights()[0]).unwrap();
        let found = weight.try_as_plain_ram().unwrap().as_slice::<f32>().unwrap().to_vec();
        assert_eq!(found, [1.0, 2.0, 3.0, 4.0]);
    }
    // Without a length, the tensor's own size is what counts.
    check(&folder, &[("location", "sub/weights.bin"), ("offset", "8")], &expect!["imported"]);
}

#[test]
fn locations_outside_the_folder_are_refused() {
    let folder = Folder::new("outside");
    let outside = folder.file("outside.bin", &DATA);
    let inner = Folder(folder.0.join("inner"));
    inner.file("w.bin", &DATA);
    std::os::unix::fs::symlink("w.bin", inner.0.join("link.bin")).unwrap();
    std::os::unix::fs::symlink("../outside.bin", inner.0.join("away.bin")).unwrap();
    std::os::unix::fs::symlink("..", inner.0.join("up")).unwrap();
    fs::hard_link(&outside, inner.0.join("hard.bin")).unwrap();
    nix::unistd::mkfifo(&inner.0.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let at = |location: &str| import(&inner.file("model.onnx", &model(&[("location", location)])));
    let told: String = [
        outside.file_name().unwrap().to_str().unwrap(),
        "../outside.bin",
        "sub/../../outside.bin",
        "/etc/hostname",
        "link.bin",
        "away.bin",
        "up/outside.bin",
        "hard.bin",
        "pipe",
        ".",
        "",
        "w.bin/x",
        "w.bin\0.png",
    ]
    .map(|location| at(location).replace("1 problem: tensor \"w\": external data ", "") + "\n")
    .concat();
    expect![[r#"
        at "outside.bin" cannot be opened: ENOENT: No such file or directory
        at "../outside.bin" leaves the model's folder
        at "sub/../../outside.bin" leaves the model's folder
        at "/etc/hostname" is absolute; it must lie in the model's folder
        at "link.bin" goes through a symbolic link
        at "away.bin" goes through a symbolic link
        at "up/outside.bin" goes through something that is no folder
        at "hard.bin" has other names (hard links); copy it
        at "pipe" is not a regular file
        at "." names no file
        at "" names no file
        at "w.bin/x" goes through something that is no folder
        at "w.bin\u{0}.png" has a zero byte in its name
    "#]]
    .assert_eq(&told);
}

#[test]
fn extents_are_checked() {
    let folder = Folder::new("extents");
    folder.file("w.bin", &DATA);
    let at = |entries: &[(&str, &str)]| {
        let mut all = vec![("location", "w.bin")];
        all.extend_from_slice(entries);
        import(&folder.file("model.onnx", &model(&all)))
            .replace("1 problem: tensor \"w\": external data ", "")
            + "\n"
    };
    let told = [
        at(&[("offset", "8"), ("length", "16")]),
        at(&[("offset", "9")]),
        at(&[("offset", "18446744073709551615")]),
        at(&[("offset", "-4")]),
        at(&[("length", "4")]),
        at(&[("length", "1e9")]),
        at(&[("offset", "0"), ("offset", "4")]),
        at(&[("location", "w.bin")]),
    ]
    .concat();
    expect![[r#"
        imported
        runs past the end of "w.bin": 16 bytes at 9 of 24
        runs past the end of "w.bin": 16 bytes at 18446744073709551615 of 24
        has offset "-4", not a number
        has 4 bytes where the tensor needs 16
        has length "1e9", not a number
        gives "offset" twice
        gives "location" twice
    "#]]
    .assert_eq(&told);
    check(&folder, &[], &expect![[r#"1 problem: tensor "w": external data names no location"#]]);
}

#[test]
fn the_total_is_bounded_and_memory_models_have_no_folder() {
    let folder = Folder::new("total");
    folder.file("w.bin", &DATA);
    let bytes = model(&[("location", "w.bin")]);
    let path = folder.file("model.onnx", &bytes);
    let limits = ImportLimits { external: Bytes(15), ..ImportLimits::default() };
    let error = Model::import("m", &path, &limits).unwrap_err();
    expect![[r#"1 problem: tensor "w": external data exceeds what is left of the limit, 15 B; raise the limit if you trust the file"#]]
        .assert_eq(&error.to_string());
    let error = Model::from_bytes("m", bytes, &ImportLimits::default()).unwrap_err();
    expect![[r#"1 problem: tensor "w": external data needs the model's folder; load the model from a file"#]]
        .assert_eq(&error.to_string());
}

#[test]
fn the_model_itself_must_be_a_file() {
    let folder = Folder::new("self");
    let name = |text: String| text.replace(folder.0.to_str().unwrap(), "FOLDER");
    expect!["FOLDER is not a regular file; name an ONNX file"].assert_eq(&name(import(&folder.0)));
    expect!["cannot read FOLDER/none.onnx"].assert_eq(&name(import(&folder.0.join("none.onnx"))));
    nix::unistd::mkfifo(&folder.0.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    expect!["FOLDER/pipe is not a regular file; name an ONNX file"]
        .assert_eq(&name(import(&folder.0.join("pipe"))));
}
