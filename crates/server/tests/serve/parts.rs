//! A processor shared in parts that overlap, and two such devices behind one server: policies that divide them answer
//! everybody, stages move between parts, and constraints between tenants hold.

use crate::support::{Folder, ask, infer_text, options, serve_with, until};
use engine::{CpuDevice, Device, online_cores};
use sched::World as _;
use sched::journal::{Reader, Record, Replay, replay};
use sched::node::policy::Choice;
use sched::node::{Act, Decision, Event, NodeWorld};
use server::http::HttpLimits;
use server::live::{Observer, Runtime, TenantRule};
use server::metrics::Metrics;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use vocab::PartitionId;

/// Requests of each model.
const EACH: usize = 12;

/// Partitions of a device.
const PARTITIONS: u16 = 3;

/// One core, another, and both; on a machine of one core three times the same.
fn grid() -> CpuDevice {
    let cores = online_cores().unwrap();
    let (first, last) = (cores[0], cores[cores.len().min(2) - 1]);
    let both = if first == last { vec![first] } else { vec![first, last] };
    CpuDevice::with_overlapping_cores(vec![vec![first], vec![last], both], 2).unwrap()
}

/// Serves both models under `policy` on so many devices; the bodies of all replies.
async fn served(folder: &Folder, policy: &str, journal: &Path, devices: usize) -> Vec<String> {
    let choice = Choice::named(policy).unwrap();
    let observers = vec![Observer::journal(journal, &choice).unwrap()];
    let server = serve_with(&folder.0, HttpLimits::default(), |options| {
        options.devices = (0..devices).map(|_| Arc::new(grid()) as Arc<dyn Device>).collect();
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

/// What a journal tells in which the two models never run side by side on a device.
#[derive(Debug, Default)]
struct Told {
    starts: usize,
    /// Moves to another partition.
    moves: usize,
    /// Devices on which runs began.
    devices: BTreeSet<u16>,
}

fn told(journal: &Path) -> Told {
    let read = || BufReader::new(File::open(journal).unwrap());
    let (mut reader, choice) = Reader::new::<Choice>(read()).unwrap();
    let replayed = replay(&mut reader, &mut NodeWorld::new(), &mut *choice.build()).unwrap();
    assert!(matches!(replayed, Replay::Same { .. }), "{choice:?}: {replayed:?}");
    let (mut reader, _) = Reader::new::<Choice>(read()).unwrap();
    let mut world = NodeWorld::new();
    let device = |partition: PartitionId| partition.0 / PARTITIONS;
    let mut told = Told::default();
    while let Some(turn) = reader.next_turn::<Event, Decision>().unwrap() {
        let Record { now, events, decisions } = turn;
        for event in &events {
            world.apply(now, event);
        }
        world.forced(now);
        for decision in &decisions {
            world.admit(now, decision).unwrap();
            match decision.act {
                Act::Start { partition, .. } => {
                    told.starts += 1;
                    told.devices.insert(device(partition));
                }
                Act::Move { run, partition } => {
                    told.moves += 1;
                    assert_eq!(device(world.run(run).unwrap().partition), device(partition), "{choice:?}");
                }
                _ => {}
            }
        }
        world.settle();
        world.check();
        let held = world.held();
        for (model, partition) in &held {
            let beside = held.iter().find(|(other, at)| device(*at) == device(*partition) && other != model);
            assert!(beside.is_none(), "{choice:?}: {model} and {beside:?} run side by side");
        }
    }
    told
}

/// The numbers of a reply.
fn data(reply: &str) -> Vec<f32> {
    let text = reply.split("\"data\":[").nth(1).unwrap().split(']').next().unwrap();
    text.split(',').map(|number| number.trim().parse().unwrap()).collect()
}

/// Serves both models under `policy` on so many devices and compares all answers.
async fn answered(folder: &Folder, policy: &str, devices: usize) -> Told {
    let journals = Folder::new();
    let journal = journals.0.join(format!("{policy}.jsonl"));
    let replies = served(folder, policy, &journal, devices).await;
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
    let told = told(&journal);
    assert!(told.starts > 0 && told.starts <= EACH * 2, "{policy}: {told:?}");
    told
}

fn models() -> Folder {
    let folder = Folder::new();
    folder.zoo("tiny_cnn", "cnn/1/model.onnx");
    folder.zoo("tiny_mlp", "mlp/1/model.onnx");
    folder
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_policy_shares_the_parts_of_a_processor() {
    let folder = models();
    for policy in Choice::NAMES {
        answered(&folder, policy, 1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_policy_serves_on_two_devices() {
    let folder = models();
    let mut devices = BTreeSet::new();
    for policy in Choice::NAMES {
        devices.extend(answered(&folder, policy, 2).await.devices);
    }
    assert_eq!(devices, BTreeSet::from([0, 1]));
}

#[test]
fn devices_that_differ_are_refused() {
    let whole = CpuDevice::with_cores(vec![vec![online_cores().unwrap()[0]]]).unwrap();
    let refused = |devices: Vec<Arc<dyn Device>>| {
        let options = options(devices);
        Runtime::start(options, Vec::new(), Arc::new(Metrics::new())).map(|_| ()).unwrap_err().to_string()
    };
    let unlike = refused(vec![Arc::new(grid()), Arc::new(whole)]);
    assert!(unlike.contains("device 1 (cpu, ") && unlike.contains("with a server each"), "{unlike}");
    assert_eq!(refused(Vec::new()), "a server needs a device");
}
