//! How answers are written.

use super::{model, port, read, with, with_half};
use crate::kserve::{Call, Labels, encode};
use expect_test::expect;
use graph::{DType, Dim, HostTensor};
use std::fmt::Write as _;

fn answer(call: &Call, outputs: &[HostTensor], labels: &Labels) -> String {
    match encode(&call.reply, outputs, labels) {
        Err(error) => format!("{:?} {error}\n", error.trouble()),
        Ok(encoded) => {
            let (json, tail) = encoded.body.split_at(encoded.json_len.unwrap_or(encoded.body.len()));
            format!("{} + {tail:?}\n", std::str::from_utf8(json).unwrap())
        }
    }
}

fn outputs() -> Vec<HostTensor> {
    let half: Vec<u8> = [1.0, 2.0].iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect();
    vec![
        HostTensor::from_f32(vec![1, 2], &[0.1, -2.0]).unwrap(),
        HostTensor::new(DType::I32, vec![1], 5_i32.to_le_bytes().to_vec()).unwrap(),
        HostTensor::new(DType::F16, vec![1, 2], half).unwrap(),
    ]
}

#[test]
fn replies_in_json_binary_and_classes() {
    let labels = Labels([("S".to_owned(), vec!["cat".to_owned(), "dog \"x\"".to_owned()])].into());
    let mut text = String::new();
    for outputs_wanted in [
        r#"{"name":"S"}"#,
        r#"{"name":"C"},{"name":"S","parameters":{"binary_data":true}}"#,
        r#"{"name":"H","parameters":{"binary_data":true}}"#,
        r#"{"name":"S","parameters":{"classification":1}}"#,
        r#"{"name":"S","parameters":{"classification":9}}"#,
        r#"{"name":"H","parameters":{"classification":2,"binary_data":true}}"#,
        r#"{"name":"C","parameters":{"classification":1}}"#,
    ] {
        let body = with(&format!(r#","outputs":[{outputs_wanted}],"id":"a\"b""#));
        let call = read(body.as_bytes(), None, &with_half()).unwrap();
        write!(text, "{outputs_wanted}\n    {}", answer(&call, &outputs(), &labels)).unwrap();
    }
    expect![[r#"
        {"name":"S"}
            {"model_name":"m","model_version":"1","id":"a\"b","outputs":[{"name":"S","datatype":"FP32","shape":[1,2],"data":[0.1,-2.0]}]} + []
        {"name":"C"},{"name":"S","parameters":{"binary_data":true}}
            {"model_name":"m","model_version":"1","id":"a\"b","outputs":[{"name":"C","datatype":"INT32","shape":[1],"data":[5]},{"name":"S","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}}]} + [205, 204, 204, 61, 0, 0, 0, 192]
        {"name":"H","parameters":{"binary_data":true}}
            {"model_name":"m","model_version":"1","id":"a\"b","outputs":[{"name":"H","datatype":"FP16","shape":[1,2],"parameters":{"binary_data_size":4}}]} + [0, 60, 0, 64]
        {"name":"S","parameters":{"classification":1}}
            {"model_name":"m","model_version":"1","id":"a\"b","outputs":[{"name":"S","datatype":"BYTES","shape":[1,1],"data":["0.100000:0:cat"]}]} + []
        {"name":"S","parameters":{"classification":9}}
            {"model_name":"m","model_version":"1","id":"a\"b","outputs":[{"name":"S","datatype":"BYTES","shape":[1,2],"data":["0.100000:0:cat","-2.000000:1:dog \"x\""]}]} + []
        {"name":"H","parameters":{"classification":2,"binary_data":true}}
            {"model_name":"m","model_version":"1","id":"a\"b","outputs":[{"name":"H","datatype":"BYTES","shape":[1,2],"parameters":{"binary_data_size":28}}]} + [10, 0, 0, 0, 50, 46, 48, 48, 48, 48, 48, 48, 58, 49, 10, 0, 0, 0, 49, 46, 48, 48, 48, 48, 48, 48, 58, 48]
        {"name":"C","parameters":{"classification":1}}
            {"model_name":"m","model_version":"1","id":"a\"b","outputs":[{"name":"C","datatype":"BYTES","shape":[1,1],"data":["5:0"]}]} + []
    "#]].assert_eq(&text);
}

#[test]
fn replies_that_json_cannot_carry() {
    let body = with(r#","outputs":[{"name":"S"}]"#);
    let call = read(body.as_bytes(), None, &with_half()).unwrap();
    let mut wrong = outputs();
    wrong[0] = HostTensor::from_f32(vec![1, 2], &[1.0, f32::NAN]).unwrap();
    let mut text = answer(&call, &wrong, &Labels::default());
    wrong[0] = HostTensor::from_f32(vec![1, 2], &[f32::NEG_INFINITY, 0.0]).unwrap();
    text += &answer(&call, &wrong, &Labels::default());
    wrong.pop();
    text += &answer(&call, &wrong, &Labels::default());
    expect![[r#"
        Invalid output 'S' element 1 is NaN, which JSON cannot carry; ask for binary output ("binary_data": true)
        Invalid output 'S' element 0 is -inf, which JSON cannot carry; ask for binary output ("binary_data": true)
        Internal the answer has 2 outputs, model 'm' has 3
    "#]].assert_eq(&text);
}

#[test]
fn classes_are_ranked_per_row_with_ties_in_order_and_nan_last() {
    let model = model(
        vec![port("X", DType::F32, &[Dim::Batch, Dim::Fixed(1)])],
        vec![port("Y", DType::F32, &[Dim::Batch, Dim::Fixed(4)])],
        2,
    );
    let body = r#"{"inputs":[{"name":"X","shape":[2,1],"datatype":"FP32","data":[1,2]}],"outputs":[{"name":"Y","parameters":{"classification":3}}]}"#;
    let call = read(body.as_bytes(), None, &model).unwrap();
    let scores = [0.5, f32::NAN, 0.5, -1.0, 3.25, 1e10, f32::INFINITY, f32::NAN];
    let tensor = HostTensor::from_f32(vec![2, 4], &scores).unwrap();
    expect![[r#"
        {"model_name":"m","model_version":"1","outputs":[{"name":"Y","datatype":"BYTES","shape":[2,3],"data":["0.500000:0","0.500000:2","-1.000000:3","inf:2","10000000000.000000:1","3.250000:0"]}]} + []
    "#]].assert_eq(&answer(&call, &[tensor], &Labels::default()));
}
