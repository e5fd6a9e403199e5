//! What becomes of request bodies, right and wrong and hostile.

use super::{A, B, model, pair, port, read, show, single, with, with_half};
use expect_test::{Expect, expect};
use graph::{DType, Dim};
use std::fmt::Write as _;

fn check(json: &str, expected: Expect) {
    expected.assert_eq(&show(&read(json.as_bytes(), None, &pair())));
}

/// Several wrong bodies at once: `text of the body => what the client is told`.
fn check_all(bodies: &[&str], expected: Expect) {
    let mut text = String::new();
    for body in bodies {
        write!(
            text,
            "{}\n    {}",
            body.chars().take(100).collect::<String>(),
            show(&read(body.as_bytes(), None, &pair()))
        )
        .unwrap();
    }
    expected.assert_eq(&text);
}

#[test]
fn json_in_any_order_nested_and_with_unknown_fields() {
    check(
        r#" {"future":{"x":[1,{}]}, "outputs":[{"name":"C"},{"name":"S","parameters":{"binary_data":true}}], "id":"q\u0031",
            "inputs":[{"data":[7, -8],"datatype":"INT64","shape":[2],"name":"B"},
                      {"name":"A","shape":[2,2],"datatype":"FP32","data":[[1.5,2],[0.1,-1e-3]],"x":null}]} "#,
        expect![[r#"
            200
            A FP32 [2, 2] [1.5, 2.0, 0.1, -0.001]
            B INT64 [2] [7, 0, 0, 0, 0, 0, 0, 0, 248, 255, 255, 255, 255, 255, 255, 255]
            -> C Json classes 0
            -> S Binary classes 0
            rows 2 class Some(2) timeout None id Some("q1")
        "#]],
    );
}

#[test]
fn all_outputs_in_one_form_when_none_is_named() {
    check(
        &with(r#","parameters":{"binary_data_output":true,"priority":1,"timeout":250,"sequence_id":3}"#),
        expect![[r#"
            200
            A FP32 [1, 2] [1.0, 2.0]
            B INT64 [1] [7, 0, 0, 0, 0, 0, 0, 0]
            -> S Binary classes 0
            -> C Binary classes 0
            rows 1 class Some(1) timeout Some(Span(250000)) id None
        "#]],
    );
}

#[test]
fn priority_timeout_and_slo() {
    let mut text = String::new();
    for parameters in [
        r#""priority":0"#,
        r#""priority":3,"timeout":100"#,
        r#""priority":9,"slo_us":5"#,
        r#""priority":18446744073709551615"#,
        r#""priority":1,"timeout":18446744073709551615"#,
        r#""timeout":499"#,
        r#""timeout":501"#,
        r#""timeout":0"#,
        r#""priority":1,"timeout":9,"slo_us":8"#,
        r#""priority":-1"#,
        r#""priority":1.0"#,
        r#""priority":"1""#,
        r#""timeout":-5"#,
        r#""timeout":1e3"#,
        r#""timeout":18446744073709551616"#,
        r#""slo_us":true"#,
        r#""binary_data_output":1"#,
        r#""triton_enable_empty_final_response":true"#,
        r#""priority":1,"priority":2"#,
        r#""headers":{"a":["b"]},"mine":"x""#,
    ] {
        let body = with(&format!(r#","outputs":[{{"name":"C"}}],"parameters":{{{parameters}}}"#));
        let shown = show(&read(body.as_bytes(), None, &pair()));
        writeln!(text, "{parameters}\n    {}", shown.lines().last().unwrap()).unwrap();
    }
    expect![[r#"
        "priority":0
            rows 1 class Some(2) timeout None id None
        "priority":3,"timeout":100
            rows 1 class Some(3) timeout None id None
        "priority":9,"slo_us":5
            rows 1 class Some(3) timeout Some(Span(5000)) id None
        "priority":18446744073709551615
            rows 1 class Some(3) timeout None id None
        "priority":1,"timeout":18446744073709551615
            rows 1 class Some(1) timeout Some(Span(18446744073709551615)) id None
        "timeout":499
            rows 1 class Some(2) timeout Some(Span(499000)) id None
        "timeout":501
            rows 1 class Some(2) timeout None id None
        "timeout":0
            rows 1 class Some(2) timeout None id None
        "priority":1,"timeout":9,"slo_us":8
            rows 1 class Some(1) timeout Some(Span(8000)) id None
        "priority":-1
            400 parameter "priority" must be a whole number: 0 for the default, 1 goes first
        "priority":1.0
            400 parameter "priority" must be a whole number: 0 for the default, 1 goes first
        "priority":"1"
            400 parameter "priority" must be a whole number: 0 for the default, 1 goes first
        "timeout":-5
            400 parameter "timeout" must be a whole number of microseconds, 0 or more
        "timeout":1e3
            400 parameter "timeout" must be a whole number of microseconds, 0 or more
        "timeout":18446744073709551616
            400 parameter "timeout" must be a whole number of microseconds, 0 or more
        "slo_us":true
            400 parameter "slo_us" must be a whole number of microseconds, 0 or more
        "binary_data_output":1
            400 parameter "binary_data_output" must be true or false
        "triton_enable_empty_final_response":true
            400 parameter "triton_enable_empty_final_response" is reserved and not supported by this server; leave it out
        "priority":1,"priority":2
            400 failed to parse the request JSON buffer: parameter "priority" is given twice at line 1 column 190
        "headers":{"a":["b"]},"mine":"x"
            rows 1 class Some(2) timeout None id None
    "#]].assert_eq(&text);
}

#[test]
fn what_is_not_a_request() {
    check_all(
        &[
            "",
            "{",
            "[]",
            r#"["id",[]]"#,
            r#"{"inputs":[["A",[1],"FP32",[1]]]}"#,
            r#"{"outputs":[["C"]],"inputs":[]}"#,
            r#"{"parameters":[],"inputs":[]}"#,
            "{}",
            "nonsense",
            r#"{"inputs":{}}"#,
            r#"{"inputs":[]}"#,
            r#"{"inputs":[1]}"#,
            r#"{"inputs":[],"inputs":[]}"#,
            r#"{"id":7,"inputs":[]}"#,
            r#"{"inputs":[{"name":"A","datatype":"FP32","data":[]}]}"#,
            r#"{"inputs":[{"name":"A","shape":[1.5],"datatype":"FP32","data":[]}]}"#,
            r#"{"inputs":[{"name":"A","shape":[9223372036854775808],"datatype":"FP32","data":[]}]}"#,
            r#"{"inputs":[{"name":"A","shape":"1,2","datatype":"FP32","data":[]}]}"#,
            r#"{"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":[NaN]}]}"#,
            &with(" trailing"),
            &format!("{} x", with("")),
        ],
        expect![[r#"

                400 failed to parse the request JSON buffer: EOF while parsing a value at line 1 column 0
            {
                400 failed to parse the request JSON buffer: EOF while parsing an object at line 1 column 1
            []
                400 failed to parse the request JSON buffer: invalid type: sequence, expected an object at line 1 column 0
            ["id",[]]
                400 failed to parse the request JSON buffer: invalid type: sequence, expected an object at line 1 column 0
            {"inputs":[["A",[1],"FP32",[1]]]}
                400 failed to parse the request JSON buffer: invalid type: sequence, expected an object at line 1 column 11
            {"outputs":[["C"]],"inputs":[]}
                400 failed to parse the request JSON buffer: invalid type: sequence, expected an object at line 1 column 12
            {"parameters":[],"inputs":[]}
                400 failed to parse the request JSON buffer: invalid type: sequence, expected an object of parameters at line 1 column 14
            {}
                400 failed to parse the request JSON buffer: missing field `inputs` at line 1 column 2
            nonsense
                400 failed to parse the request JSON buffer: expected ident at line 1 column 2
            {"inputs":{}}
                400 failed to parse the request JSON buffer: invalid type: map, expected a list of at most 256 entries at line 1 column 10
            {"inputs":[]}
                400 expected 2 inputs but got 0 inputs for model 'm'; missing: A, B
            {"inputs":[1]}
                400 failed to parse the request JSON buffer: invalid type: integer `1`, expected an object at line 1 column 12
            {"inputs":[],"inputs":[]}
                400 failed to parse the request JSON buffer: duplicate field `inputs` at line 1 column 21
            {"id":7,"inputs":[]}
                400 failed to parse the request JSON buffer: invalid type: integer `7`, expected a string of at most 1024 bytes at line 1 column 7
            {"inputs":[{"name":"A","datatype":"FP32","data":[]}]}
                400 failed to parse the request JSON buffer: missing field `shape` at line 1 column 51
            {"inputs":[{"name":"A","shape":[1.5],"datatype":"FP32","data":[]}]}
                400 failed to parse the request JSON buffer: invalid type: floating point `1.5`, expected i64 at line 1 column 35
            {"inputs":[{"name":"A","shape":[9223372036854775808],"datatype":"FP32","data":[]}]}
                400 failed to parse the request JSON buffer: invalid value: integer `9223372036854775808`, expected i64 at line 1 column 51
            {"inputs":[{"name":"A","shape":"1,2","datatype":"FP32","data":[]}]}
                400 failed to parse the request JSON buffer: invalid type: string "1,2", expected a list of at most 32 entries at line 1 column 36
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":[NaN]}]}
                400 failed to parse the request JSON buffer: expected value at line 1 column 64
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":[1,2]},{"name":"B","shape":[1],"dataty
                400 failed to parse the request JSON buffer: expected `,` or `}` at line 1 column 126
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":[1,2]},{"name":"B","shape":[1],"dataty
                400 failed to parse the request JSON buffer: trailing characters at line 1 column 127
        "#]],
    );
}

#[test]
fn inputs_that_do_not_fit_the_model() {
    let input = |text: &str| format!(r#"{{"inputs":[{text},{B}]}}"#);
    let shaped =
        |shape: &str| input(&format!(r#"{{"name":"A","shape":{shape},"datatype":"FP32","data":[]}}"#));
    let typed =
        |datatype: &str| input(&format!(r#"{{"name":"A","shape":[1,2],"datatype":"{datatype}","data":[]}}"#));
    let valued =
        |data: &str| input(&format!(r#"{{"name":"A","shape":[1,2],"datatype":"FP32","data":{data}}}"#));
    let bodies = [
        format!(r#"{{"inputs":[{A}]}}"#),
        r#"{"inputs":[]}"#.to_owned(),
        format!(r#"{{"inputs":[{A},{B},{A}]}}"#),
        format!(r#"{{"inputs":[{A},{B},{{"name":"X","shape":[1],"datatype":"INT8","data":[1]}}]}}"#),
        shaped("[1,3]"),
        shaped("[2]"),
        shaped("[]"),
        shaped("[-1,2]"),
        shaped("[1,-2]"),
        shaped("[2,2]"),
        shaped("[9223372036854775807,2]"),
        typed("FP64"),
        typed("BYTES"),
        typed("BF16"),
        typed("fp32"),
        valued("[1]"),
        valued("[1,2,3]"),
        valued("[]"),
        valued("7"),
        valued("null"),
        valued(r#"[1,"2"]"#),
        valued("[1,null]"),
        valued("[true,1]"),
        valued("[1,{}]"),
        valued("[1,1e39]"),
        valued("[1,-1e39]"),
        valued(r#""AAAA""#),
        input(r#"{"name":"A","shape":[1,2],"datatype":"FP32"}"#),
        input(
            r#"{"name":"A","shape":[1,2],"datatype":"FP32","data":[1,2],"parameters":{"binary_data_size":8}}"#,
        ),
        input(r#"{"name":"A","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}"#),
        input(r#"{"name":"A","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":-8}}"#),
        input(r#"{"name":"A","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":"8"}}"#),
        input(
            r#"{"name":"A","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":18446744073709551615}}"#,
        ),
        input(r#"{"name":"A","shape":[1,2],"datatype":"FP32","parameters":{"shared_memory_region":"r"}}"#),
    ];
    check_all(
        &bodies.each_ref().map(String::as_str),
        expect![[r#"
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":[1,2]}]}
                400 expected 2 inputs but got 1 inputs for model 'm'; missing: B
            {"inputs":[]}
                400 expected 2 inputs but got 0 inputs for model 'm'; missing: A, B
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":[1,2]},{"name":"B","shape":[1],"dataty
                400 'A' is listed more than once in "inputs"; list it once
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":[1,2]},{"name":"B","shape":[1],"dataty
                400 unexpected inference input 'X' for model 'm'
            {"inputs":[{"name":"A","shape":[1,3],"datatype":"FP32","data":[]},{"name":"B","shape":[1],"datatype"
                400 unexpected shape for input 'A' for model 'm'. Expected [-1,2], got [1,3]
            {"inputs":[{"name":"A","shape":[2],"datatype":"FP32","data":[]},{"name":"B","shape":[1],"datatype":"
                400 unexpected shape for input 'A' for model 'm'. Expected [-1,2], got [2]
            {"inputs":[{"name":"A","shape":[],"datatype":"FP32","data":[]},{"name":"B","shape":[1],"datatype":"I
                400 unexpected shape for input 'A' for model 'm'. Expected [-1,2], got []
            {"inputs":[{"name":"A","shape":[-1,2],"datatype":"FP32","data":[]},{"name":"B","shape":[1],"datatype
                400 input 'A' has shape [-1,2]: dimensions must be 0 or more and their product must fit memory
            {"inputs":[{"name":"A","shape":[1,-2],"datatype":"FP32","data":[]},{"name":"B","shape":[1],"datatype
                400 input 'A' has shape [1,-2]: dimensions must be 0 or more and their product must fit memory
            {"inputs":[{"name":"A","shape":[2,2],"datatype":"FP32","data":[]},{"name":"B","shape":[1],"datatype"
                400 input 'B' batch size does not match other inputs for 'm'
            {"inputs":[{"name":"A","shape":[9223372036854775807,2],"datatype":"FP32","data":[]},{"name":"B","sha
                400 input 'A' has shape [9223372036854775807,2]: dimensions must be 0 or more and their product must fit memory
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP64","data":[]},{"name":"B","shape":[1],"datatype"
                400 inference input 'A' data-type is 'FP64', but model 'm' expects 'FP32'
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"BYTES","data":[]},{"name":"B","shape":[1],"datatype
                400 input 'A' has data-type 'BYTES', which no model of this server takes yet
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"BF16","data":[]},{"name":"B","shape":[1],"datatype"
                400 input 'A' has data-type 'BF16', which no model of this server takes yet
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"fp32","data":[]},{"name":"B","shape":[1],"datatype"
                400 input 'A' has unknown data-type 'fp32'; use BOOL, UINT8 to UINT64, INT8 to INT64, FP16, FP32 or FP64
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":[1]},{"name":"B","shape":[1],"datatype
                400 input 'A' has 1 elements in "data", its shape [1,2] needs 2
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":[1,2,3]},{"name":"B","shape":[1],"data
                400 input 'A' has more than 2 elements in "data", its shape [1,2] needs 2
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":[]},{"name":"B","shape":[1],"datatype"
                400 input 'A' has 0 elements in "data", its shape [1,2] needs 2
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":7},{"name":"B","shape":[1],"datatype":
                400 input 'A' element 0: 7 is not a list
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":null},{"name":"B","shape":[1],"datatyp
                400 input 'A' has no data; give "data" or the parameter "binary_data_size"
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":[1,"2"]},{"name":"B","shape":[1],"data
                400 input 'A' element 1: "2"] is not a finite FP32
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":[1,null]},{"name":"B","shape":[1],"dat
                400 input 'A' element 1: null is not a finite FP32
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":[true,1]},{"name":"B","shape":[1],"dat
                400 input 'A' element 0: true is not a finite FP32
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":[1,{}]},{"name":"B","shape":[1],"datat
                400 input 'A' element 1: {}] is not a finite FP32
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":[1,1e39]},{"name":"B","shape":[1],"dat
                400 input 'A' element 1: 1e39 is not a finite FP32
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":[1,-1e39]},{"name":"B","shape":[1],"da
                400 input 'A' element 1: -1e39 is not a finite FP32
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":"AAAA"},{"name":"B","shape":[1],"datat
                400 input 'A' element 0: "AAAA" is not a list
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32"},{"name":"B","shape":[1],"datatype":"INT64","
                400 input 'A' has no data; give "data" or the parameter "binary_data_size"
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":[1,2],"parameters":{"binary_data_size"
                400 input 'A' has both "data" and "binary_data_size"; give one
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}},{"name":
                400 input 'A' claims 8 bytes of binary data, the body has 0 left
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":-8}},{"name"
                400 parameter "binary_data_size" must be a whole number of bytes, 0 or more
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":"8"}},{"name
                400 parameter "binary_data_size" must be a whole number of bytes, 0 or more
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":184467440737
                400 input 'A' claims 18446744073709551615 bytes of binary data, the body has 0 left
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","parameters":{"shared_memory_region":"r"}},{"
                400 'A' is in shared memory, which this server does not take; send the tensor in the request
        "#]],
    );
}

#[test]
fn rows_within_the_models_batch() {
    let model = model(vec![port("X", DType::U8, &[Dim::Batch, Dim::Fixed(2)])], Vec::new(), 16);
    let mut text = String::new();
    for rows in [0_u64, 1, 16, 17, 4_294_967_297] {
        let data = vec!["7"; usize::try_from(rows.min(16) * 2).unwrap()].join(",");
        let body =
            format!(r#"{{"inputs":[{{"name":"X","shape":[{rows},2],"datatype":"UINT8","data":[{data}]}}]}}"#);
        let shown = show(&read(body.as_bytes(), None, &model));
        writeln!(text, "{rows}: {}", shown.lines().last().unwrap()).unwrap();
    }
    expect![[r#"
        0: 400 inference request batch-size must be at least 1 for 'm'
        1: rows 1 class Some(2) timeout None id None
        16: rows 16 class Some(2) timeout None id None
        17: 400 inference request batch-size must be <= 16 for 'm'
        4294967297: 400 inference request batch-size must be <= 16 for 'm'
    "#]]
    .assert_eq(&text);
}

#[test]
fn outputs_that_do_not_fit_the_model() {
    let wanting = |outputs: &str| with(&format!(r#","outputs":[{outputs}]"#));
    let bodies = [
        wanting(r#"{"name":"Z"}"#),
        wanting(r#"{"name":"C"},{"name":"C"}"#),
        wanting(r#"{"name":"H"}"#),
        wanting(""),
        wanting(r#"{"name":"C","parameters":{"binary_data":"yes"}}"#),
        wanting(r#"{"name":"C","parameters":{"classification":-1}}"#),
        wanting(r#"{"name":"C","parameters":{"classification":1.5}}"#),
        wanting(r#"{"name":"C","parameters":{"shared_memory_offset":0}}"#),
    ];
    let mut text = String::new();
    for body in &bodies {
        write!(
            text,
            "{}\n    {}",
            &body[with("").len() - 1..],
            show(&read(body.as_bytes(), None, &with_half()))
        )
        .unwrap();
    }
    expect![[r#"
        ,"outputs":[{"name":"Z"}]}
            400 unexpected inference output 'Z' for model 'm'
        ,"outputs":[{"name":"C"},{"name":"C"}]}
            400 'C' is listed more than once in "outputs"; list it once
        ,"outputs":[{"name":"H"}]}
            400 output 'H' is FP16, which JSON cannot carry; ask for it with "binary_data": true
        ,"outputs":[]}
            400 output 'H' is FP16, which JSON cannot carry; ask for it with "binary_data": true
        ,"outputs":[{"name":"C","parameters":{"binary_data":"yes"}}]}
            400 parameter "binary_data" must be true or false
        ,"outputs":[{"name":"C","parameters":{"classification":-1}}]}
            400 parameter "classification" must be a whole number of classes, 0 or more
        ,"outputs":[{"name":"C","parameters":{"classification":1.5}}]}
            400 parameter "classification" must be a whole number of classes, 0 or more
        ,"outputs":[{"name":"C","parameters":{"shared_memory_offset":0}}]}
            400 'C' is in shared memory, which this server does not take; send the tensor in the request
    "#]]
    .assert_eq(&text);
}

#[test]
fn bodies_built_to_hurt() {
    let deep = "[".repeat(100_000);
    let deep_data = format!(
        r#"{{"inputs":[{{"name":"A","shape":[1,2],"datatype":"FP32","data":{}1{}}}]}}"#,
        "[".repeat(40),
        "]".repeat(40)
    );
    let deep_data = deep_data.replace("}]}", &format!("}},{B}]}}"));
    let many_dims = format!(
        r#"{{"inputs":[{{"name":"A","shape":[{}1],"datatype":"FP32","data":[]}}]}}"#,
        "1,".repeat(1_000_000)
    );
    let many_inputs = format!(r#"{{"inputs":[{A}{}]}}"#, format!(",{A}").repeat(300));
    let long_name = format!(
        r#"{{"inputs":[{{"name":"{}","shape":[1],"datatype":"FP32","data":[]}}]}}"#,
        "n".repeat(1 << 20)
    );
    let long_id = format!(r#"{{"id":"{}\u0041","inputs":[]}}"#, "i".repeat(1 << 20));
    let control =
        "{\"inputs\":[{\"name\":\"a\\u0000\\u001b[31m\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1]}]}";
    let long_element = format!(
        r#"{{"inputs":[{{"name":"A","shape":[1,2],"datatype":"FP32","data":[1{}]}},{B}]}}"#,
        "0".repeat(1 << 20)
    );
    let many_parameters = with(&format!(
        r#","parameters":{{{}"z":1}}"#,
        (0..300).map(|n| format!("\"p{n}\":1,")).collect::<String>()
    ));
    check_all(
        &[
            &deep,
            &deep_data,
            &many_dims,
            &many_inputs,
            &long_name,
            &long_id,
            control,
            &long_element,
            &many_parameters,
        ],
        expect![[r#"
            [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[
                400 the request JSON is nested deeper than 64 levels
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[
                400 the request JSON is nested deeper than 32 levels
            {"inputs":[{"name":"A","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,
                400 failed to parse the request JSON buffer: the list has more than 32 entries at line 1 column 98
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":[1,2]},{"name":"A","shape":[1,2],"data
                400 failed to parse the request JSON buffer: the list has more than 256 entries at line 1 column 14917
            {"inputs":[{"name":"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn
                400 failed to parse the request JSON buffer: invalid length 1048576, expected a string of at most 1024 bytes at line 1 column 1048597
            {"id":"iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii
                400 failed to parse the request JSON buffer: invalid length 1048577, expected a string of at most 1024 bytes at line 1 column 1048590
            {"inputs":[{"name":"a\u0000\u001b[31m","shape":[1],"datatype":"FP32","data":[1]}]}
                400 failed to parse the request JSON buffer: a string has a control character at line 1 column 38
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":[1000000000000000000000000000000000000
                400 input 'A' element 0: 1000000000000000000000000000000000000000… is not a finite FP32
            {"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","data":[1,2]},{"name":"B","shape":[1],"dataty
                400 failed to parse the request JSON buffer: more than 256 parameters at line 1 column 2341
        "#]],
    );
}

#[test]
fn invalid_utf8_is_an_error() {
    let result = read(b"{\"inputs\":[\"\xff\"]}", None, &pair());
    expect![[r#"
        400 failed to parse the request JSON buffer: invalid utf-8 sequence of 1 bytes from index 12
    "#]]
    .assert_eq(&show(&result));
}

fn binary(json: &str, tail: &[u8]) -> (Vec<u8>, Option<usize>) {
    ([json.as_bytes(), tail].concat(), Some(json.len()))
}

#[test]
fn binary_tensors() {
    let json = |a: &str, b: &str| {
        format!(
            r#"{{"id":"7","inputs":[{{"name":"B","shape":[1],"datatype":"INT64","parameters":{{"binary_data_size":{b}}}}},
                {{"name":"A","shape":[1,2],"datatype":"FP32","parameters":{{"binary_data_size":{a}}}}}]}}"#
        )
    };
    let tail: Vec<u8> =
        [7_i64.to_le_bytes().as_slice(), &f32::NAN.to_le_bytes(), &f32::INFINITY.to_le_bytes()].concat();
    let mut text = String::new();
    for (name, (body, length)) in [
        ("whole", binary(&json("8", "8").replace("]}", r#"],"outputs":[{"name":"C"}]}"#), &tail)),
        ("too short a body", binary(&json("8", "8"), &tail[..15])),
        ("too long a body", binary(&json("8", "8"), &[tail.as_slice(), b"!"].concat())),
        ("sizes swapped", binary(&json("12", "4"), &tail)),
        ("huge claim", binary(&json("9223372036854775807", "8"), &tail)),
        ("header beyond the body", (b"{}".to_vec(), Some(3))),
        ("header beyond any body", (b"{}".to_vec(), Some(usize::MAX))),
        ("header cuts the JSON", (json("8", "8").into_bytes(), Some(10))),
    ] {
        write!(text, "{name}\n    {}", show(&read(&body, length, &pair()))).unwrap();
    }
    expect![[r#"
        whole
            200
        A FP32 [1, 2] [NaN, inf]
        B INT64 [1] [7, 0, 0, 0, 0, 0, 0, 0]
        -> C Json classes 0
        rows 1 class Some(2) timeout None id Some("7")
        too short a body
            400 input 'A' claims 8 bytes of binary data, the body has 7 left
        too long a body
            400 the body has 1 bytes after the last input; "binary_data_size" values must add up to its length
        sizes swapped
            400 [request id: 7] input byte size mismatch for input 'A' for model 'm'. Expected 8, got 12
        huge claim
            400 input 'A' claims 9223372036854775807 bytes of binary data, the body has 8 left
        header beyond the body
            400 Inference-Header-Content-Length is 3, the body has 2 bytes
        header beyond any body
            400 Inference-Header-Content-Length is 18446744073709551615, the body has 2 bytes
        header cuts the JSON
            400 failed to parse the request JSON buffer: EOF while parsing a value at line 1 column 10
    "#]]
    .assert_eq(&text);
}

#[test]
fn raw_bodies() {
    let batch_of_two = model(vec![port("X", DType::I16, &[Dim::Batch, Dim::Fixed(2)])], Vec::new(), 8);
    let two_free =
        model(vec![port("X", DType::U8, &[Dim::Free("h".into()), Dim::Free("w".into())])], Vec::new(), 0);
    let flags = model(vec![port("X", DType::Bool, &[Dim::Fixed(2)])], Vec::new(), 0);
    let mut text = String::new();
    for (name, body, model) in [
        ("free", &[1, 0, 2, 0][..], &single(DType::I16)),
        ("odd", &[1, 0, 2][..], &single(DType::I16)),
        ("empty", &[][..], &single(DType::I16)),
        ("one row", &[1, 0, 2, 0][..], &batch_of_two),
        ("two rows", &[1, 0, 2, 0, 3, 0, 4, 0][..], &batch_of_two),
        ("two inputs", &[1][..], &pair()),
        ("two free dimensions", &[1][..], &two_free),
        ("flags", &[1, 0][..], &flags),
        ("a flag that is 2", &[1, 2][..], &flags),
    ] {
        write!(text, "{name}\n    {}", show(&read(body, Some(0), model))).unwrap();
    }
    expect![[r#"
        free
            200
        X INT16 [2] [1, 0, 2, 0]
        -> Y Binary classes 0
        rows 1 class Some(2) timeout None id None
        odd
            400 a raw body does not tell the shape of input 'X' [-1]; send a JSON header with its "shape"
        empty
            200
        X INT16 [0] []
        -> Y Binary classes 0
        rows 1 class Some(2) timeout None id None
        one row
            200
        X INT16 [1, 2] [1, 0, 2, 0]
        rows 1 class Some(2) timeout None id None
        two rows
            400 [request id: <id_unknown>] input byte size mismatch for input 'X' for model 'm'. Expected 4, got 8
        two inputs
            400 a raw body (Inference-Header-Content-Length: 0) needs a model with one input, 'm' has 2
        two free dimensions
            400 a raw body does not tell the shape of input 'X' [-1,-1]; send a JSON header with its "shape"
        flags
            200
        X BOOL [2] [1, 0]
        rows 1 class Some(2) timeout None id None
        a flag that is 2
            400 input 'X' element 1: a BOOL is 0 or 1, got 2
    "#]].assert_eq(&text);
}

#[test]
fn elements_of_every_type_and_their_ranges() {
    let mut text = String::new();
    for (datatype, elements) in [
        ("BOOL", "true,false,1,0"),
        ("BOOL", "2"),
        ("UINT8", "0,255"),
        ("UINT8", "256"),
        ("UINT8", "-1"),
        ("UINT16", "65535"),
        ("UINT32", "4294967295"),
        ("UINT64", "18446744073709551615"),
        ("UINT64", "18446744073709551616"),
        ("INT8", "-128,127"),
        ("INT8", "128"),
        ("INT16", "-32768"),
        ("INT32", "-2147483648,2147483648"),
        ("INT64", "-9223372036854775808"),
        ("INT64", "1.0"),
        ("INT64", "1e3"),
        ("FP16", "1"),
        ("FP32", "3.4028235e38,-0.0,1e-46"),
        ("FP32", "3.5e38"),
        ("FP64", "1.7976931348623157e308,5e-324"),
        ("FP64", "1e309"),
        ("FP64", "true"),
    ] {
        let model = single(DType::from_kserve(datatype).unwrap());
        let count = elements.split(',').count();
        let body = format!(
            r#"{{"inputs":[{{"name":"X","shape":[{count}],"datatype":"{datatype}","data":[{elements}]}}],"parameters":{{"binary_data_output":true}}}}"#
        );
        let shown = show(&read(body.as_bytes(), None, &model));
        writeln!(text, "{datatype} {elements}: {}", shown.lines().find(|line| *line != "200").unwrap())
            .unwrap();
    }
    expect![[r#"
        BOOL true,false,1,0: X BOOL [4] [1, 0, 1, 0]
        BOOL 2: 400 input 'X' element 0: 2 is not true or false
        UINT8 0,255: X UINT8 [2] [0, 255]
        UINT8 256: 400 input 'X' element 0: 256 is not a UINT8
        UINT8 -1: 400 input 'X' element 0: -1 is not a UINT8
        UINT16 65535: X UINT16 [1] [255, 255]
        UINT32 4294967295: X UINT32 [1] [255, 255, 255, 255]
        UINT64 18446744073709551615: X UINT64 [1] [255, 255, 255, 255, 255, 255, 255, 255]
        UINT64 18446744073709551616: 400 input 'X' element 0: 18446744073709551616 is not a UINT64
        INT8 -128,127: X INT8 [2] [128, 127]
        INT8 128: 400 input 'X' element 0: 128 is not an INT8
        INT16 -32768: X INT16 [1] [0, 128]
        INT32 -2147483648,2147483648: 400 input 'X' element 1: 2147483648 is not an INT32
        INT64 -9223372036854775808: X INT64 [1] [0, 0, 0, 0, 0, 0, 0, 128]
        INT64 1.0: 400 input 'X' element 0: 1.0 is not an INT64
        INT64 1e3: 400 input 'X' element 0: 1e3 is not an INT64
        FP16 1: 400 input 'X' is FP16, which JSON cannot carry; send it with "binary_data_size"
        FP32 3.4028235e38,-0.0,1e-46: X FP32 [3] [3.4028235e38, -0.0, 0.0]
        FP32 3.5e38: 400 input 'X' element 0: 3.5e38 is not a finite FP32
        FP64 1.7976931348623157e308,5e-324: X FP64 [2] [255, 255, 255, 255, 255, 255, 239, 127, 1, 0, 0, 0, 0, 0, 0, 0]
        FP64 1e309: 400 input 'X' element 0: 1e309 is not a finite FP64
        FP64 true: 400 input 'X' element 0: true is not a finite FP64
    "#]].assert_eq(&text);
}

#[test]
fn tensors_beyond_the_limit_are_refused_before_they_are_read() {
    let body = r#"{"inputs":[{"name":"X","shape":[1048577],"datatype":"UINT8","data":[1]}]}"#;
    expect![[r#"
        400 the inputs need 1048577 bytes, this server takes at most 1048576 a request; send fewer rows
    "#]]
    .assert_eq(&show(&read(body.as_bytes(), None, &single(DType::U8))));
}
