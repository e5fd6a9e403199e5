//! What holds for every tensor and every body.

use super::{LIMITS, pair, read, single, terms, with};
use crate::kserve::{Asked, Call, Form, Labels, encode, parse, parse_raw};
use crate::live::ModelInfo;
use graph::DType;
use proptest::prelude::*;
use std::sync::Arc;

fn round_trip(asked: Asked<'_>, model: &Arc<ModelInfo>) -> Call {
    asked.check(model, &terms(), LIMITS).unwrap()
}

/// What a client would send back after reading a reply: the same tensor as an input.
fn echo(call: &Call, form: Form) -> Vec<u8> {
    let mut call = call.clone();
    call.reply.outputs[0].form = form;
    let encoded = encode(&call.reply, &call.submission.inputs, &Labels::default()).unwrap();
    let json_len = encoded.json_len.unwrap_or(encoded.body.len());
    let (json, tail) = encoded.body.split_at(json_len);
    let json =
        std::str::from_utf8(json).unwrap().replace("\"outputs\"", "\"inputs\"").replace("\"Y\"", "\"X\"");
    let model = &call.submission.model;
    let body = [json.as_bytes(), tail].concat();
    let again = round_trip(parse(&body, Some(json.len())).unwrap(), model);
    again.submission.inputs[0].data().to_vec()
}

proptest! {
    #[test]
    fn finite_floats_survive_json_and_binary_both_ways(values in prop::collection::vec(prop::num::f32::ANY, 0..40)) {
        let model = single(DType::F32);
        let finite: Vec<f32> = values.into_iter().map(|v| if v.is_finite() { v } else { 0.0 }).collect();
        let raw: Vec<u8> = finite.iter().flat_map(|v| v.to_le_bytes()).collect();
        let call = round_trip(parse_raw(&raw, &model).unwrap(), &model);
        prop_assert_eq!(&echo(&call, Form::Json), &raw);
        prop_assert_eq!(&echo(&call, Form::Binary), &raw);
    }

    #[test]
    fn doubles_survive_json(values in prop::collection::vec(prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL, 0..40)) {
        let model = single(DType::F64);
        let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let call = round_trip(parse_raw(&raw, &model).unwrap(), &model);
        prop_assert_eq!(&echo(&call, Form::Json), &raw);
    }

    #[test]
    fn integers_survive_json(values in prop::collection::vec(any::<i64>(), 0..40)) {
        for dtype in [DType::I64, DType::U64, DType::I32, DType::U32, DType::I16, DType::U16, DType::I8, DType::U8] {
            let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            let model = single(dtype);
            let call = round_trip(parse_raw(&raw, &model).unwrap(), &model);
            prop_assert_eq!(&echo(&call, Form::Json), &raw);
        }
    }

    #[test]
    fn any_bytes_are_a_call_or_an_error(body in prop::collection::vec(any::<u8>(), 0..200), length in 0_usize..220) {
        for model in [pair(), single(DType::F32)] {
            drop(read(&body, Some(length), &model));
            drop(read(&body, None, &model));
        }
    }

    #[test]
    fn any_edit_of_a_request_is_a_call_or_an_error(at in 0_usize..200, byte in any::<u8>(), cut in 0_usize..200) {
        let mut body = with(r#","outputs":[{"name":"S","parameters":{"classification":1}}],"parameters":{"priority":1}"#).into_bytes();
        let place = at % body.len();
        body[place] = byte;
        body.truncate(body.len() - cut % body.len());
        if let Ok(call) = read(&body, None, &pair()) {
            prop_assert_eq!(call.submission.inputs.len(), 2);
        }
    }
}
