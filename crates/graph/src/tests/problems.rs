//! Every problem of a file is reported at once.

use super::{Onnx, floats};
use crate::{ImportError, ImportLimits, Model};
use expect_test::{Expect, expect};
use prost::Message;
use tract_onnx::pb::{AttributeProto, GraphProto, NodeProto, TensorProto};
use vocab::Bytes;

fn check(onnx: &Onnx, expected: &Expect) {
    let message = match onnx.import() {
        Ok(_) => "imported".to_owned(),
        Err(ImportError::Invalid { problems }) => {
            problems.iter().map(|problem| format!("{problem}\n")).collect::<String>()
        }
        Err(other) => other.to_string(),
    };
    expected.assert_eq(&message);
}

/// A sound little model to spoil.
fn sound() -> Onnx {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "4"]).weight("w", &[4, 3], 0.0).node("MatMul", &["x", "w"], "y").output("y");
    onnx
}

#[test]
fn a_sound_model_is_imported() {
    check(&sound(), &expect!["imported"]);
}

#[test]
fn every_unsupported_operator_is_listed_with_its_nodes() {
    let mut onnx = sound();
    onnx.node("Loop", &["y"], "l1").node("NoSuchThing", &["l1"], "n1").node("NoSuchThing", &["n1"], "n2");
    onnx.node("Relu", &["n2"], "r");
    onnx.graph.node.last_mut().unwrap().domain = "com.example".to_owned();
    onnx.node("Attention", &["r"], "a");
    onnx.graph.node.last_mut().unwrap().domain = "com.microsoft".to_owned();
    check(
        &onnx,
        &expect![[r#"
            operator Loop is not supported (used by "l1"); replace it before export
            operator NoSuchThing is not supported (used by "n1", "n2"); replace it before export
            operator com.example.Relu is not supported (used by "r"); replace it before export
            operator com.microsoft.Attention is not supported (used by "a"); replace it before export
        "#]],
    );
}

#[test]
fn operators_inside_sub_graphs_count() {
    let mut onnx = sound();
    let mut body = Onnx::new();
    body.node("NoSuchThing", &["x"], "inner").node("Relu", &["nowhere"], "out").output("out");
    onnx.node("If", &["y"], "z");
    let attribute =
        AttributeProto { name: "then_branch".to_owned(), g: Some(body.graph), ..Default::default() };
    onnx.graph.node.last_mut().unwrap().attribute.push(attribute);
    check(
        &onnx,
        &expect![[r#"
            node "out" reads "nowhere", which nothing writes
            operator NoSuchThing is not supported (used by "inner"); replace it before export
        "#]],
    );
}

#[test]
fn tensors_that_contradict_themselves_are_refused() {
    let mut onnx = sound();
    onnx.floats("short", &[2, 2], &[1.0; 3]);
    onnx.floats("negative", &[2, -2], &[1.0; 4]);
    onnx.floats("huge", &[i64::MAX, i64::MAX], &[1.0]);
    onnx.floats("vast", &[1 << 40], &[]);
    let strings = TensorProto { name: "text".to_owned(), data_type: 8, dims: vec![1], ..Default::default() };
    let odd = TensorProto { name: "odd".to_owned(), data_type: 99, dims: vec![1], ..Default::default() };
    let half = TensorProto { name: "bf16".to_owned(), data_type: 16, dims: vec![1], ..Default::default() };
    let listed = TensorProto {
        name: "list".to_owned(),
        data_type: 7,
        dims: vec![3],
        int64_data: vec![1, 2],
        ..Default::default()
    };
    onnx.graph.initializer.extend([strings, odd, half, listed]);
    onnx.node("Constant", &[], "c");
    let attribute =
        AttributeProto { name: "value".to_owned(), t: Some(floats("", &[3], &[1.0])), ..Default::default() };
    onnx.graph.node.last_mut().unwrap().attribute.push(attribute);
    check(
        &onnx,
        &expect![[r#"
            tensor "short": has 12 bytes, its dimensions [2, 2] need 16
            tensor "negative": has the negative dimension -2
            tensor "huge": has more elements than memory can hold: [9223372036854775807, 9223372036854775807]
            tensor "vast": has 0 elements, its dimensions [1099511627776] need 1099511627776
            tensor "text": holds strings, which no device computes with
            tensor "odd": has the unknown element type 99
            tensor "bf16": has element type Bfloat16, which is not supported; export in float32
            tensor "list": has 2 elements, its dimensions [3] need 3
            tensor "c.value": has 4 bytes, its dimensions [3] need 12
        "#]],
    );
}

#[test]
fn ports_must_be_usable() {
    let mut onnx = Onnx::new();
    onnx.input("x", &["N", "4"]).input("x", &["4"]).input("", &["4"]).input("minus", &["-3"]);
    onnx.graph.input.push(super::port("text", 8, Some(&["1"])));
    onnx.graph.input.push(super::port("untyped", 0, Some(&["1"])));
    onnx.input("deep", &[&"(".repeat(64)]);
    onnx.node("Relu", &["x"], "y").output("y").output("").output("nowhere");
    check(
        &onnx,
        &expect![[r#"
            output "nowhere": nothing writes it
            input "x": is listed twice
            input number 2: has no name
            input "minus": has the negative dimension -3
            input "text": has element type String, which is not supported
            input "untyped": has element type Undefined, which is not supported
            input "deep": has a symbolic dimension that is too long or too deep
            output number 1: has no name
        "#]],
    );
}

#[test]
fn nodes_must_read_what_is_written_once() {
    let mut onnx = sound();
    onnx.node("Relu", &["nothing"], "a").node("Relu", &["x"], "y").node("Add", &["p", "x"], "q");
    onnx.node("Relu", &["q"], "p");
    onnx.graph.node.push(NodeProto {
        op_type: "Relu".to_owned(),
        input: vec!["x".to_owned()],
        ..Default::default()
    });
    check(
        &onnx,
        &expect![[r#"
            "y" is written more than once, last by node "y"
            node "a" reads "nothing", which nothing writes
            a node without outputs, "(Relu)" is not supported; remove it
            nodes wait for each other in a cycle: "q", "p"
        "#]],
    );
}

#[test]
fn a_file_without_graph_or_output_is_refused() {
    let mut onnx = sound();
    onnx.graph.output.clear();
    check(
        &onnx,
        &expect![[r#"
        output list: the graph has none
    "#]],
    );
    let mut proto = sound().proto();
    proto.graph = None;
    let error = Model::from_bytes("m", proto.encode_to_vec(), &ImportLimits::default()).unwrap_err();
    expect!["1 problem: the file holds no graph; export it again"].assert_eq(&error.to_string());
    let error = Model::from_bytes("m", Vec::new(), &ImportLimits::default()).unwrap_err();
    expect!["1 problem: the file holds no graph; export it again"].assert_eq(&error.to_string());
}

#[test]
fn too_many_or_too_deep_nodes_are_refused() {
    let mut onnx = sound();
    let limits = ImportLimits { nodes: 0, ..ImportLimits::default() };
    let error = Model::from_bytes("m", onnx.bytes(), &limits).unwrap_err();
    expect!["1 problem: the graph has more than 0 nodes; raise the limit if you trust the file"]
        .assert_eq(&error.to_string());
    let mut body = GraphProto::default();
    for level in 0..9 {
        let attribute =
            AttributeProto { name: "then_branch".to_owned(), g: Some(body), ..Default::default() };
        let (input, output) = (vec!["x".to_owned()], vec![format!("level {level}")]);
        let node = NodeProto {
            op_type: "If".to_owned(),
            input,
            output,
            attribute: vec![attribute],
            ..Default::default()
        };
        body = GraphProto { node: vec![node], ..Default::default() };
    }
    onnx.graph.node.extend(body.node);
    check(
        &onnx,
        &expect![[r#"
        sub-graphs of node "level 0" are nested deeper than 8
    "#]],
    );
}

#[test]
fn sizes_are_bounded_before_they_are_allocated() {
    let limits = ImportLimits { file: Bytes(10), ..ImportLimits::default() };
    let error = Model::from_bytes("m", sound().bytes(), &limits).unwrap_err();
    assert!(matches!(error, ImportError::FileTooLarge { limit: Bytes(10), .. }), "{error}");

    // Two bytes a node in the file.
    let mut nodes = [0x0a, 0x00].repeat(1 << 20);
    let mut bytes = vec![0x3a];
    prost::encoding::encode_varint(nodes.len() as u64, &mut bytes);
    bytes.append(&mut nodes);
    let limits = ImportLimits { derived: Bytes(64 << 20), ..ImportLimits::default() };
    let error = Model::from_bytes("m", bytes, &limits).unwrap_err();
    expect!["the file unpacks to more than 64.0 MiB of small parts; raise the limit if you trust the file"]
        .assert_eq(&error.to_string());
}

/// A few bytes of file that ask for a terabyte of constants, in several ways.
#[test]
fn computed_constants_are_bounded() {
    let spoiled: [&dyn Fn(&mut Onnx); 6] = [
        // A constant too large to be looked into, repeated.
        &|onnx| {
            onnx.integers("large", &[1 << 20]).node("ConstantOfShape", &["large"], "row");
            onnx.integers("shape", &[1 << 20, 1 << 20]).node("Expand", &["row", "shape"], "big");
        },
        &|onnx| {
            onnx.integers("shape", &[1 << 20, 1 << 20]).node("ConstantOfShape", &["shape"], "big");
        },
        &|onnx| {
            onnx.integers("shape", &[1 << 20, 1 << 20]).node("Expand", &["one", "shape"], "big");
        },
        &|onnx| {
            onnx.integers("shape", &[1 << 20, 1 << 20]).node("Tile", &["square", "shape"], "big");
        },
        &|onnx| {
            onnx.integers("half", &[1 << 20]).node("Concat", &["half", "half"], "shape").with("axis", &[0]);
            onnx.node("ConstantOfShape", &["shape"], "big");
        },
        &|onnx| {
            onnx.integers("pads", &[0, 0, 1 << 20, 1 << 20]).node("Pad", &["square", "pads"], "big");
        },
    ];
    for spoil in spoiled {
        let mut onnx = Onnx::new();
        onnx.input("x", &["N", "1"]).floats("one", &[1], &[1.0]).floats("square", &[1, 1], &[1.0]);
        spoil(&mut onnx);
        onnx.node("Add", &["x", "big"], "y").output("y");
        let error = onnx.import().unwrap_err();
        assert!(matches!(error, ImportError::ValueTooLarge { .. }), "{error}");
    }
}
