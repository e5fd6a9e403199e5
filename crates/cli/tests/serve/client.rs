//! The real tritonclient: deadlines that are kept, classes that overtake, and a journal that tells the same story.

use crate::support::{Folder, Server, decisions, events, explain, journal, python, raddle, replays, text};
use serde_json::{Value, json};

/// Networks that `e2e_client.py` asks: one that takes long, one that takes no time.
const NETWORKS: [&str; 2] = ["resnet18", "tiny_cnn"];

/// Runs one check of `e2e_client.py` on a fresh server; gives what it told and the turns of the server's journal.
fn check(folder: &Folder, name: &str, arguments: &[&str]) -> (Value, Vec<Value>) {
    let path = folder.path("journal");
    let server = Server::start(&folder.0, &[&["--journal", &path], arguments].concat());
    let told = python("tests/python/e2e_client.py", &[&server.url(), name]);
    server.stop();
    replays(&path);
    (serde_json::from_str(&told).unwrap(), journal(&path))
}

fn networks() -> Folder {
    let folder = Folder::new();
    folder.zoo(&NETWORKS);
    folder
}

/// The number in an act such as `{"Park": {"run": 7}}`.
fn number(act: &Value, kind: &str, field: &str) -> Option<u64> {
    act[kind][field].as_u64()
}

/// When each request of a journal arrived and when its answer is due.
fn arrivals(turns: &[Value]) -> Vec<(u64, u64, Option<u64>)> {
    let arrival = |(now, event): (u64, Value)| {
        let request = &event["RequestArrived"]["request"];
        Some((request["id"].as_u64()?, now, request["deadline"].as_u64()))
    };
    events(turns).into_iter().filter_map(arrival).collect()
}

#[test]
fn every_call_of_tritonclient_is_answered_as_by_triton() {
    let folder = networks();
    check(&folder, "surface", &[]);
    let (model, file) = ("mtcnn_onet", "mtcnn_onet.onnx");
    let folder = Folder::new();
    folder.models(&[model]);
    let server = Server::start(&folder.0, &[]);
    let script = "crates/server/tests/python/client_http.py";
    let told = python(script, &[&server.url(), model, "--onnx", &folder.path(file)]);
    assert!(told.lines().filter(|line| line.starts_with("ok ")).count() > 20, "{told}");
    server.stop();
}

#[test]
fn replies_name_the_request_that_explain_tells_of() {
    let folder = Folder::new();
    folder.zoo(&["tiny_mlp"]);
    let path = folder.path("journal");
    let server = Server::start(&folder.0, &["--journal", &path]);
    let ask = |timeout: u64| {
        let data = vec![0; 16];
        let inputs = json!([{"name": "input", "datatype": "FP32", "shape": [1, 16], "data": data}]);
        let body = json!({"inputs": inputs, "parameters": {"timeout": timeout}}).to_string();
        let reply = server.post("/v2/models/tiny_mlp/infer", &body);
        let number =
            reply.head.lines().find_map(|line| line.strip_prefix("raddle-request: ")).map(str::to_owned);
        (reply.status, number.unwrap_or_else(|| panic!("{reply:?}")).parse::<u64>().unwrap())
    };
    let [(answered, first), (refused, second)] = [ask(60_000_000), ask(1)];
    assert_eq!((answered, refused), (200, 503));
    server.stop();
    let [first, second] = [first, second].map(|request| explain(&path, request));
    assert!(first.last().unwrap().ends_with("finished: answered"), "{first:?}");
    let end = second.last().unwrap();
    assert!(end.contains("rejected: ") || end.contains("dropped: "), "{second:?}");
}

#[test]
fn deadlines_out_of_reach_are_refused_at_once() {
    let folder = networks();
    let (_, turns) = check(&folder, "impossible", &["--max-batch-size", "2"]);
    // At once: in the turn in which they arrived, or, where even that came too late, in the first after it.
    let decisions = decisions(&turns);
    let ended =
        |id: u64, kind: &str| decisions.iter().find(|(_, act, _)| number(act, kind, "request") == Some(id));
    let mut refused = 0;
    for (id, arrived, deadline) in arrivals(&turns) {
        let Some(deadline) = deadline else { continue };
        let end = ended(id, "Reject").or_else(|| ended(id, "Expire"));
        let Some((now, ..)) = end else { continue };
        assert!(*now == arrived || deadline <= *now, "r{id} was refused, but not on arrival");
        assert!(decisions.iter().all(|(_, act, _)| {
            !act["Start"]["requests"].as_array().is_some_and(|requests| requests.contains(&json!(id)))
        }));
        refused += 1;
    }
    assert_eq!(refused, 2, "{decisions:?}");
}

#[test]
fn deadlines_that_pass_are_told_before_the_work_waited_for_is_over() {
    let folder = networks();
    let (_, turns) = check(&folder, "passing", &["--policy", "fifo", "--max-batch-size", "2"]);
    let decisions = decisions(&turns);
    let events = events(&turns);
    let (mut in_run, mut waiting) = (0, 0);
    for (id, _, deadline) in arrivals(&turns) {
        let Some(deadline) = deadline else { continue };
        let told = decisions.iter().position(|(_, act, _)| number(act, "Expire", "request") == Some(id));
        let told = told.unwrap_or_else(|| panic!("r{id} did not expire: {decisions:?}"));
        let now = decisions[told].0;
        assert!(now >= deadline, "r{id} was told before its deadline");
        // What it was part of or waited for: the run that was begun last.
        let begun = decisions[..told].iter().rfind(|(_, act, _)| act.get("Start").is_some());
        let Some((_, start, _)) = begun else { continue };
        let run = number(start, "Start", "run");
        let over = events.iter().find_map(|(at, event)| {
            let ends = [number(event, "RunFinished", "run"), number(event, "RunAbandoned", "run")];
            ends.contains(&run).then_some(*at)
        });
        assert!(over.is_none_or(|over| now < over), "r{id} was told after the run it waited for was over");
        let part = start["Start"]["requests"].as_array().unwrap().contains(&json!(id));
        *if part { &mut in_run } else { &mut waiting } += 1;
    }
    assert!(in_run > 0 && waiting > 0, "{decisions:?}");
}

#[test]
fn deadlines_pass_while_programs_are_prepared() {
    let folder = Folder::new();
    folder.models(&["yolo_320n"]);
    let (told, turns) = check(&folder, "unprepared", &["--max-batch-size", "1"]);
    assert!(told["text"].as_str().unwrap().contains("shapes not asked for before"), "{told}");
    // The scheduler never knew it: only the request that was answered arrived.
    assert_eq!(arrivals(&turns).len(), 1);
}

#[test]
fn a_request_of_class_1_stops_class_3_which_then_goes_on() {
    let folder = networks();
    let (_, turns) = check(&folder, "overtaking", &["--max-batch-size", "2"]);
    let path = folder.path("journal");
    let decisions = decisions(&turns);
    let parks: Vec<(u64, u64)> = decisions
        .iter()
        .filter_map(|(_, act, why)| Some((number(act, "Park", "run")?, number(why, "Preempted", "by")?)))
        .collect();
    assert!(!parks.is_empty(), "nothing was parked: {decisions:?}");
    let events = events(&turns);
    let happened =
        |kind: &str, run: u64| events.iter().position(|(_, event)| number(event, kind, "run") == Some(run));
    // A run told to stop may have been in its last segment; one of them was not.
    let stopped = parks.iter().find(|(run, _)| happened("RunParked", *run).is_some());
    let (run, by) = *stopped.unwrap_or_else(|| panic!("no run stopped: {parks:?}"));
    let (parked, resumed, finished) =
        (happened("RunParked", run), happened("RunResumed", run), happened("RunFinished", run));
    assert!(parked < resumed && resumed < finished, "{parked:?} {resumed:?} {finished:?}");
    // The story of a request that was stopped, and of the one it was stopped for.
    let start = decisions.iter().find(|(_, act, _)| number(act, "Start", "run") == Some(run)).unwrap();
    let victim = start.1["Start"]["requests"][0].as_u64().unwrap();
    let story = explain(&path, victim).join("\n");
    for part in [
        format!("asked to park: r{by} of class 1 waits"),
        format!("run{run} parked before segment"),
        "resumed: it was the most urgent work".into(),
        "finished: answered".into(),
    ] {
        assert!(story.contains(&part), "{part:?} is not in\n{story}");
    }
    let winner = explain(&path, by).join("\n");
    assert!(winner.contains("class 1") && winner.contains("finished: answered"), "{winner}");
    let svg = folder.path("picture.svg");
    text(&raddle(&["timeline", &path, "--output", &svg]));
    assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg"));
}
