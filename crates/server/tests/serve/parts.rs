//! A processor shared in parts that overlap: policies that divide it answer everybody, stages move between parts, and
//! constraints between tenants hold.

use crate::support::{Folder, ask, infer_text, serve_with, until};
use engine::{CpuDevice, online_cores};
use sched::World as _;
use sched::journal::{Reader, Record, Replay, replay};
use sched::node::policy::Choice;
use sched::node::{Act, Decision, Event, NodeWorld};
use server::http::HttpLimits;
use server::live::{Observer, TenantRule};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Requests of each model.
const EACH: usize = 12;

/// One core, another, and both; on a machine of one core three times the same.
fn grid() -> CpuDevice {
    let cores = online_cores().unwrap();
    let (first, last) = (cores[0], cores[cores.len().min(2) - 1]);
    let both = if first == last { vec![first] } else { vec![first, last] };
    CpuDevice::with_overlapping_cores(vec![vec![first], vec![last], both], 2).unwrap()
}

/// Serves both models under `policy`; the bodies of all replies.
async fn served(folder: &Folder, policy: &str, journal: &Path) -> Vec<String> {
    let choice = Choice::named(policy).unwrap();
    let observers = vec![Observer::journal(journal, &choice).unwrap()];
    let server = serve_with(&folder.0, HttpLimits::default(), |options| {
        options.device = Arc::new(grid());
        options.policy = choice;
        options.observers = observers;
        options.rules = vec![TenantRule::Apart("cnn".into(), "mlp".into())];
    })
    .await;
    let handle = server.runtime.handle();
    let (address, texts) =
        (server.address, ["cnn", "mlp"].map(|model| infer_text(&handle, model, "Connection: close\r\n")));
    let clients: Vec<_> = (0..EACH * 2)
        .map(|place| {
            let text = texts[place % 2].clone();
            std::thread::spawn(move || ask(address, &text))
        })
        .collect();
    until(|| clients.iter().all(|client| client.is_finished())).await;
    let replies = clients.into_iter().map(|client| client.join().unwrap()).collect();
    server.serving.drain(Duration::from_secs(10)).await;
    server.runtime.stop();
    replies
}

/// Starts, and moves to another partition, of a journal in which the two models never run side by side.
fn starts_and_moves(journal: &Path) -> (usize, usize) {
    let read = || BufReader::new(File::open(journal).unwrap());
    let (mut reader, choice) = Reader::new::<Choice>(read()).unwrap();
    let replayed = replay(&mut reader, &mut NodeWorld::new(), &mut *choice.build()).unwrap();
    assert!(matches!(replayed, Replay::Same { .. }), "{choice:?}: {replayed:?}");
    let (mut reader, _) = Reader::new::<Choice>(read()).unwrap();
    let mut world = NodeWorld::new();
    let (mut starts, mut moves) = (0, 0);
    while let Some(turn) = reader.next_turn::<Event, Decision>().unwrap() {
        let Record { now, events, decisions } = turn;
        for event in &events {
            world.apply(now, event);
        }
        world.forced(now);
        for decision in &decisions {
            world.admit(now, decision).unwrap();
            starts += usize::from(matches!(decision.act, Act::Start { .. }));
            moves += usize::from(matches!(decision.act, Act::Move { .. }));
        }
        world.settle();
        world.check();
        let models: std::collections::BTreeSet<_> =
            world.held().into_iter().map(|(model, _)| model).collect();
        assert!(models.len() <= 1, "{choice:?}: {models:?} run side by side");
    }
    (starts, moves)
}

/// The numbers of a reply.
fn data(reply: &str) -> Vec<f32> {
    let text = reply.split("\"data\":[").nth(1).unwrap().split(']').next().unwrap();
    text.split(',').map(|number| number.trim().parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_policy_shares_the_parts_of_a_processor() {
    let folder = Folder::new();
    folder.zoo("tiny_cnn", "cnn/1/model.onnx");
    folder.zoo("tiny_mlp", "mlp/1/model.onnx");
    let journals = Folder::new();
    for policy in Choice::NAMES {
        let journal = journals.0.join(format!("{policy}.jsonl"));
        let replies = served(&folder, policy, &journal).await;
        for reply in &replies {
            assert!(reply.starts_with("HTTP/1.1 200"), "{policy}: {reply}");
        }
        // Every model's inputs were the same, and so must its answers be, wherever its segments ran.
        for model in ["cnn", "mlp"] {
            let own = replies.iter().filter(|reply| reply.contains(&format!("\"model_name\":\"{model}\"")));
            let answers: Vec<Vec<f32>> = own.map(|reply| data(reply)).collect();
            assert_eq!(answers.len(), EACH, "{policy}, {model}");
            // Batches of other sizes are added up in another order.
            let close = |answer: &Vec<f32>| {
                answer.iter().zip(&answers[0]).all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs().max(1.0))
            };
            assert!(answers.iter().all(close), "{policy}, {model}: {answers:?}");
        }
        let (starts, moves) = starts_and_moves(&journal);
        assert!(starts > 0 && starts <= EACH * 2, "{policy}: {starts} starts, {moves} moves");
    }
}
