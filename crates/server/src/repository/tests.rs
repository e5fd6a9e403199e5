//! Configurations as text, and repositories as lists of files, with what comes of them.

#![expect(clippy::too_many_lines, reason = "a test is its input and its expected text, however long")]

use super::pbtxt::{self, Message, Value};
use super::{ConfigError, ModelConfig, config_json, parse_config, scan};
use crate::live::{ModelInfo, ModelState};
use expect_test::{Expect, expect};
use graph::{DType, Dim, Port};
use proptest::prelude::*;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use vocab::Class;

fn tree(message: &Message, indent: usize, out: &mut String) {
    for field in &message.fields {
        let pad = "  ".repeat(indent);
        match &field.value {
            Value::Message(inner) => {
                writeln!(out, "{pad}{} {} {{", field.at, field.name).unwrap();
                tree(inner, indent + 1, out);
            }
            Value::Text(text) => writeln!(out, "{pad}{} {} {text:?}", field.at, field.name).unwrap(),
            Value::Word(word) => writeln!(out, "{pad}{} {} {word}", field.at, field.name).unwrap(),
        }
    }
}

fn check_text(text: &str, expected: Expect) {
    let mut shown = String::new();
    match pbtxt::parse(text) {
        Ok(message) => tree(&message, 0, &mut shown),
        Err(error) => writeln!(shown, "{error}").unwrap(),
    }
    expected.assert_eq(&shown);
}

#[test]
fn every_form_of_the_text_format() {
    check_text(
        "# a comment\nname: \"a\" 'b' # more\n  \"\\x41\\101\\n\\u00e9\\\"\"\nn: -5, hex: 0x1F; f: 1.5e-3 flag: true\nempty: []\ndims: [ 1, -1,\n 3 ]\nm { k: KIND_CPU }\nm: { }\nm: < n < x: 1 > >\nlist: [ { a: 1 }, < a: 2 > ]\nlist { a: 3 }",
        expect![[r#"
            2:1 name "abAA\né\""
            4:1 n -5
            4:8 hex 0x1F
            4:19 f 1.5e-3
            4:29 flag true
            6:9 dims 1
            6:12 dims -1
            7:2 dims 3
            8:1 m {
              8:5 k KIND_CPU
            9:1 m {
            10:1 m {
              10:6 n {
                10:10 x 1
            11:9 list {
              11:11 a 1
            11:19 list {
              11:21 a 2
            12:1 list {
              12:8 a 3
        "#]],
    );
}

#[test]
fn text_that_is_wrong_is_told_with_its_place() {
    let mut shown = String::new();
    for text in [
        "name",
        "name \"a\"",
        "name: ",
        "name: \"a",
        "name: \"a\nb\"",
        "name: \"\\q\"",
        "name: \"\\xff\"",
        "name: \"\\ud800\"",
        "m {",
        "m: < a: 1 }",
        "}",
        "a: [1 2]",
        "a: [1,",
        "a: [,]",
        "5: 1",
        "a: @",
        "é: 1",
        "[ext.field]: 1",
        "ok: 1\n  a: {\n    b: }\n",
        &"m{".repeat(100),
    ] {
        let error = pbtxt::parse(text).map_or_else(|error| error.to_string(), |_| "accepted".into());
        let text: String = text.chars().take(30).collect();
        writeln!(shown, "{text:?}: {error}").unwrap();
    }
    expect![[r#"
        "name": 1:5: expected ':' or '{', found the end of the text
        "name \"a\"": 1:6: expected ':' or '{', found '"'
        "name: ": 1:7: expected a value, found the end of the text
        "name: \"a": 1:9: the string does not end
        "name: \"a\nb\"": 1:9: the string does not end on its line
        "name: \"\\q\"": 1:8: this escape is not one of text format
        "name: \"\\xff\"": 1:7: the string is not UTF-8
        "name: \"\\ud800\"": 1:8: this escape is not one of text format
        "m {": 1:4: the text ends where '}' should be
        "m: < a: 1 }": 1:11: expected a field name, found '}'
        "}": 1:1: expected a field name, found '}'
        "a: [1 2]": 1:7: expected ',' or ']', found '2'
        "a: [1,": 1:7: expected a value, found the end of the text
        "a: [,]": 1:5: expected a value, found ','
        "5: 1": 1:1: a field name cannot begin as `5` does
        "a: @": 1:4: expected a value, found '@'
        "é: 1": 1:1: expected a field name, found 'é'
        "[ext.field]: 1": 1:1: expected a field name, found '['
        "ok: 1\n  a: {\n    b: }\n": 3:8: expected a value, found '}'
        "m{m{m{m{m{m{m{m{m{m{m{m{m{m{m{": 1:67: messages are nested deeper than 32
    "#]]
    .assert_eq(&shown);
}

fn check_config(text: &str, expected: Expect) {
    let shown = match parse_config(text, "m") {
        Ok((config, warnings)) => {
            let warnings: String = warnings.iter().map(|warning| format!("warning {warning}\n")).collect();
            format!("{config:#?}\n{warnings}")
        }
        Err(ConfigError::Faults { faults }) => faults.iter().map(|fault| format!("{fault}\n")).collect(),
        Err(ConfigError::Syntax(error)) => format!("{error}\n"),
    };
    expected.assert_eq(&shown);
}

const FULL: &str = r#"
name: "m"
platform: "onnxruntime_onnx"
max_batch_size: 8
input [ { name: "X" data_type: TYPE_FP32 dims: [ 3, -1 ] } ]
output { name: "Y" data_type: TYPE_INT64 dims: [ 10 ] label_filename: "labels.txt" }
version_policy: { specific: { versions: [ 1, 3 ] } }
instance_group [ { kind: KIND_GPU count: 2 gpus: [ 0, 1 ] } ]
dynamic_batching {
  preferred_batch_size: [ 4, 8 ]
  max_queue_delay_microseconds: 100
  priority_levels: 3
  default_priority_level: 2
  default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5000 allow_timeout_override: true max_queue_size: 16 }
  priority_queue_policy { key: 1 value { max_queue_size: 4 } }
}
parameters { key: "raddle.slo_us" value { string_value: "20000" } }
parameters { key: "other" value: { string_value: "kept" } }
optimization { cuda { graphs: true } }
future_field: 7
"#;

#[test]
fn a_full_configuration() {
    check_config(
        FULL,
        expect![[r#"
        ModelConfig {
            name: "m",
            max_batch_size: Some(
                8,
            ),
            inputs: [
                TensorConfig {
                    name: "X",
                    dtype: F32,
                    dims: [
                        3,
                        -1,
                    ],
                    label_filename: None,
                },
            ],
            outputs: [
                TensorConfig {
                    name: "Y",
                    dtype: I64,
                    dims: [
                        10,
                    ],
                    label_filename: Some(
                        "labels.txt",
                    ),
                },
            ],
            batching: Batching {
                preferred: [
                    4,
                    8,
                ],
                delay: Span(
                    100000,
                ),
                preserve_ordering: false,
                levels: 3,
                levels_given: true,
                default_class: Class(
                    2,
                ),
                default_policy: QueuePolicy {
                    timeout_action: Delay,
                    default_timeout: Span(
                        5000000,
                    ),
                    allow_timeout_override: true,
                    max_queue_size: 16,
                },
                policies: {
                    Class(
                        1,
                    ): QueuePolicy {
                        timeout_action: Reject,
                        default_timeout: Span(
                            0,
                        ),
                        allow_timeout_override: false,
                        max_queue_size: 4,
                    },
                },
            },
            dynamic_batching: true,
            version_policy: Specific(
                [
                    1,
                    3,
                ],
            ),
            model_filename: None,
            instance_groups: [
                InstanceGroup {
                    kind: "KIND_GPU",
                    count: 2,
                    gpus: [
                        0,
                        1,
                    ],
                },
            ],
            parameters: {
                "other": "kept",
                "raddle.slo_us": "20000",
            },
            slo: Some(
                Span(
                    20000000,
                ),
            ),
            period: None,
        }
        warning 8:18: instance_group is read and not honoured yet: the policy places runs
        warning 19:1: optimization is read and has no effect
        warning 20:1: field future_field is unknown and has no effect
    "#]],
    );
}

#[test]
fn every_fault_of_a_configuration_is_told_at_once() {
    check_config(
        r#"
name: "other"
backend: "pytorch"
platform: "tensorrt_plan"
max_batch_size: -1
input { name: "X" data_type: TYPE_STRING dims: 0 }
input { name: "X" data_type: TYPE_FP32 dims: [ -2, 1.5 ] reshape { shape: 1 } }
input { data_type: FP32 }
input { name: "X" data_type: TYPE_FP32 dims: 1 label_filename: "../../etc/passwd" }
version_policy { all {} latest {} }
dynamic_batching {
  preferred_batch_size: 0
  priority_levels: 2
  default_priority_level: 3
  max_queue_delay_microseconds: "soon"
  default_queue_policy { timeout_action: DROP }
  priority_queue_policy { key: 0 value {} }
  priority_queue_policy { key: 5 value {} }
}
parameters { key: "raddle.slo_us" value { string_value: "fast" } }
parameters { key: "raddle.class" value { string_value: "0" } }
parameters { key: "raddle.clas" value { string_value: "1" } }
sequence_batching { }
model_transaction_policy { decoupled: true }
default_model_filename: "../model.onnx"
instance_group { kind: KIND_TPU }
max_batch_size: 4
"#,
        expect![[r#"
            2:1: name "other" differs from the folder's, "m"; make them equal
            3:1: backend "pytorch" is not served; what works: "onnxruntime" or "onnx" (export the model to ONNX)
            4:1: platform "tensorrt_plan" is not served; what works: "onnxruntime_onnx" or "onnx" (export the model to ONNX)
            5:1: max_batch_size must be a whole number, 0 or more, within its range
            6:1: input "X" is declared twice; keep one
            6:19: no model of this server takes TYPE_STRING yet
            6:42: a dimension is a positive whole number, or -1 for any size
            7:48: a dimension is a positive whole number, or -1 for any size
            7:52: dims must be whole numbers: positive, or -1 for any size
            7:58: reshape is not served; remove it
            8:1: an input has no name; add the one in the ONNX file
            8:9: FP32 is no data type; for example TYPE_FP32 or TYPE_INT64 is
            9:1: label_filename "../../etc/passwd" must be a plain file name, without folders
            10:1: version_policy has exactly one of latest, all and specific
            11:1: the default priority level is 3, priority_levels is 2; lower one
            11:1: a priority_queue_policy is for a level beyond priority_levels (2)
            11:1: preferred_batch_size 0 must be between 1 and max_batch_size (4)
            15:3: max_queue_delay_microseconds must be a whole number, 0 or more, within its range
            16:26: timeout_action is REJECT or DELAY
            17:3: the key of a priority_queue_policy is a priority level, 1 or more
            20:1: raddle.slo_us is a positive number of microseconds, not "fast"
            21:1: raddle.class is a priority level, 1 or more, not "0"
            22:1: parameter "raddle.clas" is unknown; raddle.class, raddle.slo_us and raddle.period_us exist
            23:1: sequence_batching is not served by raddle; remove it or the model
            24:28: decoupled models are not served; set it to false
            25:1: default_model_filename "../model.onnx" must be a plain file name, without folders
            26:18: kind is KIND_AUTO, KIND_GPU, KIND_CPU or KIND_MODEL
            27:1: max_batch_size is given twice; keep one
        "#]],
    );
}

#[test]
fn contradictions_between_fields() {
    let mut shown = String::new();
    for text in [
        "max_batch_size: 4 dynamic_batching { preferred_batch_size: 8 }",
        "max_batch_size: 0 dynamic_batching { preferred_batch_size: 2 }",
        "dynamic_batching { preferred_batch_size: 200 }",
        "dynamic_batching { default_priority_level: 1 }",
        "dynamic_batching { priority_levels: 100 }",
        "dynamic_batching { priority_levels: 2 default_priority_level: 1 } parameters { key: \"raddle.class\" value { string_value: \"2\" } }",
        "dynamic_batching { priority_levels: 2 } parameters { key: \"raddle.class\" value { string_value: \"2\" } }",
        "parameters { key: \"raddle.class\" value { string_value: \"9\" } }",
        "parameters { key: \"raddle.class\" value { string_value: \"65\" } }",
        "parameters { key: \"a\" } parameters { key: \"a\" }",
        "platform: \"\" backend: \"onnx\"",
    ] {
        let result = match parse_config(text, "m") {
            Ok((config, _)) => {
                format!("class {} of {}", config.batching.default_class.level(), config.batching.levels)
            }
            Err(error) => error.to_string(),
        };
        writeln!(shown, "{text}\n    {result}").unwrap();
    }
    expect![[r#"
        max_batch_size: 4 dynamic_batching { preferred_batch_size: 8 }
            1:19: preferred_batch_size 8 must be between 1 and max_batch_size (4)
        max_batch_size: 0 dynamic_batching { preferred_batch_size: 2 }
            1:19: preferred_batch_size 2 must be between 1 and max_batch_size (0)
        dynamic_batching { preferred_batch_size: 200 }
            class 1 of 4
        dynamic_batching { default_priority_level: 1 }
            1:1: default_priority_level needs priority_levels; add it
        dynamic_batching { priority_levels: 100 }
            1:20: priority_levels is at most 64
        dynamic_batching { priority_levels: 2 default_priority_level: 1 } parameters { key: "raddle.class" value { string_value: "2" } }
            1:1: raddle.class and default_priority_level differ; keep one
        dynamic_batching { priority_levels: 2 } parameters { key: "raddle.class" value { string_value: "2" } }
            class 2 of 2
        parameters { key: "raddle.class" value { string_value: "9" } }
            class 9 of 9
        parameters { key: "raddle.class" value { string_value: "65" } }
            1:1: the default priority level is 65, it can be at most 64
        parameters { key: "a" } parameters { key: "a" }
            1:25: parameter "a" is given twice; keep one
        platform: "" backend: "onnx"
            class 1 of 4
    "#]].assert_eq(&shown);
}

#[test]
fn the_terms_of_a_configuration() {
    let (config, _) = parse_config(FULL, "m").unwrap();
    let classes = [1, 2, 3].map(|level| config.default_timeout(Class::new(level).unwrap()));
    expect![[r#"
        Terms { levels: 3, default_class: Class(2), timeouts: [Honoured, AtMost(Span(5000000)), AtMost(Span(5000000))] }
        [Some(Span(20000000)), Some(Span(5000000)), Some(Span(5000000))]
        Terms { levels: 4, default_class: Class(1), timeouts: [Honoured, Honoured, Honoured, Honoured] }
    "#]].assert_eq(&format!(
        "{:?}\n{classes:?}\n{:?}\n",
        config.terms(),
        ModelConfig::bare("m").terms()
    ));
}

#[test]
fn the_configuration_clients_read() {
    let (config, _) = parse_config(FULL, "m").unwrap();
    let port = |name: &str, dtype, shape: &[Dim]| Port { name: name.into(), dtype, shape: shape.to_vec() };
    let inputs = vec![port("X", DType::F32, &[Dim::Batch, Dim::Fixed(3), Dim::Free("w".into())])];
    let outputs = vec![port("Y", DType::I64, &[Dim::Batch, Dim::Fixed(10)])];
    let state = ModelState::Ready;
    let mut model = ModelInfo { name: "m".into(), version: 3, state, inputs, outputs, batch_max: 8 };
    let mut shown = format!("{:#}\n", config_json(&config, &model));
    model.batch_max = 0;
    model.inputs[0].shape.remove(0);
    let bare = config_json(&ModelConfig::bare("m"), &model);
    writeln!(shown, "{} {} {}", bare["max_batch_size"], bare["input"][0]["dims"], bare["dynamic_batching"])
        .unwrap();
    expect![[r#"
        {
          "backend": "onnxruntime",
          "default_model_filename": "model.onnx",
          "dynamic_batching": {
            "default_priority_level": 2,
            "default_queue_policy": {
              "allow_timeout_override": true,
              "default_timeout_microseconds": 5000,
              "max_queue_size": 16,
              "timeout_action": "DELAY"
            },
            "max_queue_delay_microseconds": 100,
            "preferred_batch_size": [
              4,
              8
            ],
            "preserve_ordering": false,
            "priority_levels": 3,
            "priority_queue_policy": {
              "1": {
                "allow_timeout_override": false,
                "default_timeout_microseconds": 0,
                "max_queue_size": 4,
                "timeout_action": "REJECT"
              }
            }
          },
          "input": [
            {
              "allow_ragged_batch": false,
              "data_type": "TYPE_FP32",
              "dims": [
                3,
                -1
              ],
              "format": "FORMAT_NONE",
              "is_shape_tensor": false,
              "name": "X",
              "optional": false
            }
          ],
          "instance_group": [
            {
              "count": 2,
              "gpus": [
                0,
                1
              ],
              "kind": "KIND_GPU"
            }
          ],
          "max_batch_size": 8,
          "model_transaction_policy": {
            "decoupled": false
          },
          "name": "m",
          "output": [
            {
              "data_type": "TYPE_INT64",
              "dims": [
                10
              ],
              "is_shape_tensor": false,
              "label_filename": "labels.txt",
              "name": "Y"
            }
          ],
          "parameters": {
            "other": {
              "string_value": "kept"
            },
            "raddle.slo_us": {
              "string_value": "20000"
            }
          },
          "platform": "onnxruntime_onnx",
          "response_cache": {
            "enable": false
          },
          "version_policy": {
            "specific": {
              "versions": [
                1,
                3
              ]
            }
          }
        }
        0 [3,-1] null
    "#]]
    .assert_eq(&shown);
}

/// A folder of its own for each test, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("raddle-repository-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("repository")).unwrap();
        Self(path)
    }

    /// Writes `text` to `path`, a folder when it ends in a slash.
    fn put(&self, path: &str, text: &str) {
        let full = self.0.join(path);
        if path.ends_with('/') {
            return fs::create_dir_all(full).unwrap();
        }
        fs::create_dir_all(full.parent().unwrap()).unwrap();
        fs::write(full, text).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let full = self.0.join(path);
        fs::create_dir_all(full.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, full).unwrap();
    }

    fn check(&self, expected: Expect) {
        let root = self.0.join("repository").canonicalize().unwrap();
        let found = scan(&root).unwrap();
        let mut shown = String::new();
        for entry in &found.entries {
            let path = entry.path.strip_prefix(&root).unwrap_or(Path::new("outside!"));
            let labels =
                if entry.labels.0.is_empty() { String::new() } else { format!(" {:?}", entry.labels.0) };
            writeln!(shown, "{} {} {}{labels}", entry.name, entry.version, path.display()).unwrap();
        }
        for problem in &found.problems {
            writeln!(shown, "! {:?} {problem}", problem.model.as_deref().unwrap_or("")).unwrap();
        }
        for warning in &found.warnings {
            writeln!(shown, "? {warning}").unwrap();
        }
        expected.assert_eq(&shown);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn every_layout_of_a_model() {
    let folder = Folder::new();
    folder.put("repository/bare.onnx", "");
    folder.put("repository/boxed/model.onnx", "");
    folder.put("repository/boxed/weights.bin", "");
    for version in [1, 2, 10] {
        folder.put(&format!("repository/latest/{version}/model.onnx"), "");
        folder.put(&format!("repository/all/{version}/model.onnx"), "");
        folder.put(&format!("repository/some/{version}/model.onnx"), "");
    }
    folder.put("repository/all/config.pbtxt", "version_policy { all {} }");
    folder
        .put("repository/some/config.pbtxt", "version_policy { specific { versions: [1, 10] } } surprise: 1");
    folder.put(
        "repository/labelled/config.pbtxt",
        "output { name: \"Y\" data_type: TYPE_FP32 dims: 2 label_filename: \"l.txt\" }",
    );
    folder.put("repository/labelled/l.txt", "cat\r\ndog\n");
    folder.put("repository/labelled/1/model.onnx", "");
    folder.put("repository/renamed/config.pbtxt", "default_model_filename: \"net.onnx\"");
    folder.put("repository/renamed/4/net.onnx", "");
    folder.put("repository/README.md", "");
    folder.put("repository/.git/config", "");
    folder.check(expect![[r#"
        all 1 all/1/model.onnx
        all 2 all/2/model.onnx
        all 10 all/10/model.onnx
        bare 1 bare.onnx
        boxed 1 boxed/model.onnx
        labelled 1 labelled/1/model.onnx {"Y": ["cat", "dog"]}
        latest 10 latest/10/model.onnx
        renamed 4 renamed/4/net.onnx
        some 1 some/1/model.onnx
        some 10 some/10/model.onnx
        ? some/config.pbtxt: 1:51: field surprise is unknown and has no effect
    "#]]);
}

#[test]
fn every_problem_at_once_and_the_rest_still_loads() {
    let folder = Folder::new();
    folder.put("secret/model.onnx", "");
    folder.put("repository/good/1/model.onnx", "");
    folder.put("repository/bad name/1/model.onnx", "");
    folder.put("repository/stats/1/model.onnx", "");
    folder.put("repository/empty/", "");
    folder.put("repository/torch/1/model.pt", "");
    folder.put("repository/nothing/1/", "");
    folder.put("repository/half/1/model.onnx", "");
    folder.put("repository/half/2/", "");
    folder.put("repository/twice.onnx", "");
    folder.put("repository/twice/1/model.onnx", "");
    folder.put("repository/both/model.onnx", "");
    folder.put("repository/both/1/model.onnx", "");
    folder.put("repository/versions/01/model.onnx", "");
    folder.put("repository/versions/0/model.onnx", "");
    folder.put("repository/versions/-1/model.onnx", "");
    folder.put("repository/missing/1/model.onnx", "");
    folder.put("repository/missing/config.pbtxt", "version_policy { specific { versions: [1, 2] } }");
    folder.put("repository/faults/1/model.onnx", "");
    folder.put("repository/faults/config.pbtxt", "backend: \"tensorflow\" max_batch_size: -1");
    folder.put("repository/syntax/1/model.onnx", "");
    folder.put("repository/syntax/config.pbtxt", "name: \"syntax\"\nmax_batch_size 3");
    folder.put("repository/labels/1/model.onnx", "");
    folder.put(
        "repository/labels/config.pbtxt",
        "output { name: \"Y\" data_type: TYPE_FP32 label_filename: \"gone.txt\" }",
    );
    folder.put("repository/folder.onnx/1/", "");
    folder.check(expect![[r#"
        good 1 good/1/model.onnx
        half 1 half/1/model.onnx
        ! "" bad name: a model's name has letters, digits, '.', '_' and '-' only, at most 255; rename it
        ! "both" both/model.onnx: version 1 is there twice, as a file and as a folder; keep one
        ! "empty" empty: there is no model.onnx and no version folder (such as 1/model.onnx); add one
        ! "faults" faults/config.pbtxt: 1:1: backend "tensorflow" is not served; what works: "onnxruntime" or "onnx" (export the model to ONNX)
        ! "faults" faults/config.pbtxt: 1:23: max_batch_size must be a whole number, 0 or more, within its range
        ! "" folder.onnx: this is a folder with a file's name; rename it
        ! "half" half/2: there is no model.onnx; add it
        ! "labels" labels/gone.txt: cannot be opened: No such file or directory (os error 2)
        ! "missing" missing: version_policy names versions that are not there: 2
        ! "nothing" nothing/1: there is no model.onnx; add it
        ! "stats" stats: no model can be called stats: /v2/models/stats is the statistics of all; rename it
        ! "syntax" syntax/config.pbtxt: 2:16: expected ':' or '{', found '3'
        ! "torch" torch/1: there is no model.onnx, only model.pt; raddle serves ONNX, export the model to it
        ! "versions" versions: there is no model.onnx and no version folder (such as 1/model.onnx); add one
        ! "twice" twice: the model is there twice, as a file and as a folder or version 1; keep one
    "#]]);
}

#[test]
fn links_stay_inside_the_repository() {
    let folder = Folder::new();
    folder.put("secret/model.onnx", "");
    folder.put("secret/config.pbtxt", "max_batch_size: 1");
    folder.put("repository/real/1/model.onnx", "");
    folder.link("repository/alias", "real");
    folder.link("repository/inner/1/model.onnx", "../../real/1/model.onnx");
    folder.link("repository/out.onnx", "../secret/model.onnx");
    folder.link("repository/outside", "../secret");
    folder.link("repository/version/1", "../../secret");
    folder.link("repository/file/1/model.onnx", "../../../secret/model.onnx");
    folder.link("repository/config/config.pbtxt", "../../secret/config.pbtxt");
    folder.put("repository/config/1/model.onnx", "");
    folder.link("repository/loop/1/model.onnx", "model.onnx");
    folder.link("repository/broken.onnx", "nowhere");
    folder.link("repository/device/1/model.onnx", "/dev/zero");
    folder.check(expect![[r#"
        alias 1 real/1/model.onnx
        inner 1 real/1/model.onnx
        real 1 real/1/model.onnx
        ! "" broken.onnx: cannot be opened: No such file or directory (os error 2)
        ! "config" config/config.pbtxt: this link leads out of the repository; put the file itself there
        ! "device" device/1/model.onnx: this link leads out of the repository; put the file itself there
        ! "file" file/1/model.onnx: this link leads out of the repository; put the file itself there
        ! "loop" loop/1/model.onnx: cannot be opened: Too many levels of symbolic links (os error 40)
        ! "" out.onnx: this link leads out of the repository; put the file itself there
        ! "" outside: this link leads out of the repository; put the file itself there
        ! "version" version/1: this link leads out of the repository; put the file itself there
    "#]]);
}

#[test]
fn a_missing_repository_is_one_error() {
    let folder = Folder::new();
    let error = scan(&folder.0.join("nowhere")).unwrap_err().to_string();
    let shown = error.replace(folder.0.to_str().unwrap(), "…");
    expect![[r#"cannot read model repository "…/nowhere"; name a folder that holds models"#]]
        .assert_eq(&shown);
}

proptest! {
    #[test]
    fn any_text_is_a_configuration_or_an_error(text in "[a-z{}<>\\[\\]:,;\"'#\\\\0-9\n -]{0,80}") {
        drop(parse_config(&text, "m"));
    }

    #[test]
    fn any_edit_of_a_configuration_is_one_or_an_error(at in 0_usize..1000, with in any::<char>(), cut in 0_usize..1000) {
        let mut text: Vec<char> = FULL.chars().collect();
        let place = at % text.len();
        text[place] = with;
        text.truncate(text.len() - cut % text.len());
        drop(parse_config(&text.into_iter().collect::<String>(), "m"));
    }

    #[test]
    fn quoted_strings_survive(text in any::<String>()) {
        let quoted: String = text.chars().flat_map(|c| match c {
            '"' | '\\' => vec!['\\', c],
            '\n' => vec!['\\', 'n'],
            c => vec![c],
        }).collect();
        let message = pbtxt::parse(&format!("name: \"{quoted}\"")).unwrap();
        prop_assert_eq!(&message.fields[0].value, &Value::Text(text));
    }
}
