//! What needs no runtime: statuses of every end, the index, and addresses. The rest is in `tests/`.

use super::catalog::Catalog;
use super::listen::bind;
use super::respond::{Failure, unanswered};
use crate::kserve::{CallError, ReplyError};
use crate::live::{ModelInfo, ModelState, Outcome, SubmitError};
use crate::repository::{Problem, Repository};
use expect_test::expect;
use std::fmt::Write as _;
use std::sync::Arc;

#[test]
fn how_each_end_is_told() {
    let why = || "the model takes 50 µs, 20 µs are left".to_owned();
    let name = || "m".to_owned();
    let failures = [
        unanswered(&Outcome::Rejected { label: "queue_full", why: "16 requests wait".into() }),
        unanswered(&Outcome::Rejected {
            label: "queue_full",
            why: "Exceeds maximum queue size of 16".into(),
        }),
        unanswered(&Outcome::Rejected { label: "cannot_meet_deadline", why: why() }),
        unanswered(&Outcome::Rejected { label: "no_model", why: "model m3 is not served".into() }),
        unanswered(&Outcome::Rejected { label: "shape", why: "n is 9, at most 8".into() }),
        unanswered(&Outcome::Dropped { why: why() }),
        unanswered(&Outcome::Late { why: why() }),
        unanswered(&Outcome::Failed { why: "device 0 failed".into() }),
        Some(SubmitError::Draining.into()),
        Some(SubmitError::Full { limit: 8 }.into()),
        Some(SubmitError::NotReady { name: name(), why: "it is loading".into() }.into()),
        Some(SubmitError::Shape { name: name(), why: "n is 9, at most 8".into() }.into()),
        Some(CallError::NoData { input: "X".into() }.into()),
        Some(ReplyError::Outputs { model: name(), expected: 1, found: 2 }.into()),
        Some(Failure::unknown_model("m")),
        Some(Failure::unknown_version("m", "3")),
    ];
    let mut text = String::new();
    for failure in failures {
        let failure = failure.unwrap();
        writeln!(text, "{} {}", failure.status.as_u16(), failure.error).unwrap();
    }
    expect![[r#"
        503 Exceeds maximum queue size: 16 requests wait
        503 Exceeds maximum queue size of 16
        503 Request timeout expired: the model takes 50 µs, 20 µs are left
        503 model m3 is not served
        400 n is 9, at most 8
        503 Request timeout expired: the model takes 50 µs, 20 µs are left
        503 Request timeout expired: the model takes 50 µs, 20 µs are left
        500 device 0 failed
        503 the server is draining and takes no new requests; retry on another replica
        503 Exceeds maximum queue size: 8 requests are in flight; retry later
        503 model "m" is not ready: it is loading
        400 model "m" cannot take these shapes: n is 9, at most 8
        400 input 'X' has no data; give "data" or the parameter "binary_data_size"
        500 the answer has 2 outputs, model 'm' has 1
        404 Request for unknown model: 'm' is not found
        404 Request for unknown model: 'm' version 3 is not found
    "#]]
    .assert_eq(&text);
}

#[test]
fn the_index_tells_every_reason() {
    let model = |name: &str, state| {
        let name = name.to_owned();
        Arc::new(ModelInfo { name, version: 1, state, inputs: Vec::new(), outputs: Vec::new(), batch_max: 0 })
    };
    let problem = |model: Option<&str>, path: &str, why: &str| Problem {
        model: model.map(str::to_owned),
        path: path.into(),
        why: why.into(),
    };
    let problems = vec![
        problem(Some("bad"), "bad/config.pbtxt", "one"),
        problem(Some("bad"), "bad/config.pbtxt", "two"),
        problem(None, "no name", "three"),
        problem(Some("good"), "good/2", "an older version is broken"),
    ];
    let catalog = Catalog::new(&Repository { problems, ..Repository::default() });
    let models = [
        model("good", ModelState::Ready),
        model("later", ModelState::Loading),
        model("never", ModelState::Unavailable("the file is cut short".into())),
    ];
    let index = serde_json::to_value(catalog.index(&models)).unwrap();
    expect![[r#"
        [
          {
            "name": "good",
            "state": "READY",
            "version": "1"
          },
          {
            "name": "later",
            "state": "LOADING",
            "version": "1"
          },
          {
            "name": "never",
            "reason": "the file is cut short",
            "state": "UNAVAILABLE",
            "version": "1"
          },
          {
            "name": "bad",
            "reason": "bad/config.pbtxt: one; bad/config.pbtxt: two",
            "state": "UNAVAILABLE",
            "version": ""
          }
        ]
    "#]]
    .assert_eq(&format!("{index:#}\n"));
}

#[tokio::test]
async fn only_loopback_unless_allowed() {
    let mut text = String::new();
    for address in ["127.0.0.1:0", "[::ffff:127.0.0.1]:0", "0.0.0.0:0", "192.0.2.1:80", "[::]:0"] {
        let result = bind(address.parse().unwrap(), false).await;
        let told = result.map_or_else(|error| error.to_string(), |_| "listens".into());
        writeln!(text, "{address}: {told}").unwrap();
    }
    expect![[r#"
        127.0.0.1:0: listens
        [::ffff:127.0.0.1]:0: [::ffff:127.0.0.1]:0 can be reached from other machines and there is no authentication yet; use 127.0.0.1, or allow it explicitly
        0.0.0.0:0: 0.0.0.0:0 can be reached from other machines and there is no authentication yet; use 127.0.0.1, or allow it explicitly
        192.0.2.1:80: 192.0.2.1:80 can be reached from other machines and there is no authentication yet; use 127.0.0.1, or allow it explicitly
        [::]:0: [::]:0 can be reached from other machines and there is no authentication yet; use 127.0.0.1, or allow it explicitly
    "#]].assert_eq(&text);
    let allowed = bind("0.0.0.0:0".parse().unwrap(), true).await;
    assert!(allowed.is_ok_and(|(_, address)| address.port() != 0));
}
