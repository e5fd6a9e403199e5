//! Several GPUs of one machine: what it takes to bring a model from one to the other beside bringing it from the host, and
//! how many requests a server answers on one and on all.

use super::model::{WHOLE, at, inputs, load, precisions, run_through};
use crate::host;
use crate::spatial::serving;
use crate::statistics::quantile;
use ::cuda::{CudaDevice, CudaOptions, Precision};
use anyhow::Context as _;
use engine::{Buffer, Device, Program};
use graph::segment;
use sched::node::policy::Choice;
use server::live::{Handle, Outcome, Submission};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vocab::{Bytes, PartitionId, Span};

/// Moves measured each way.
const ROUNDS: usize = 40;
/// Batch of the server's model.
const BATCH: u32 = 8;
/// Requests that are always in flight for each device.
const CLIENTS: usize = 48;
/// How long the server is asked.
const ASKED: Duration = Duration::from_secs(4);

/// Everything; there is no bar.
pub(super) fn run(out: &Path, kind: &str, models: &[&str]) -> anyhow::Result<bool> {
    std::fs::create_dir_all(out)?;
    let precision = *precisions(kind)?.first().context("no precision")?;
    let count = ::cuda::devices();
    if count < 2 {
        host::say("this machine has one GPU: it is opened twice, so that copies stay on it");
    }
    let devices: Vec<CudaDevice> =
        (0..count.max(2)).map(|at| open(at % count.max(1), precision, out)).collect::<anyhow::Result<_>>()?;
    let pairs = ::cuda::introduce(&devices.iter().collect::<Vec<_>>())?;
    host::print(&format!("{count} GPU(s); direct between {pairs:?}"));
    let mut table =
        String::from("model,bytes,gpus,host_p50_ms,host_p95_ms,device_p50_ms,device_p95_ms,ratio\n");
    for name in models {
        moves((&devices[0], &devices[1], count), name, &mut table)?;
        std::fs::write(out.join("several.csv"), &table)?;
    }
    let devices: Vec<Arc<dyn Device>> =
        devices.into_iter().map(|device| Arc::new(device) as Arc<dyn Device>).collect();
    let name = models.first().context("no model")?;
    serve(out, &devices, name)?;
    Ok(true)
}

fn open(ordinal: usize, precision: Precision, out: &Path) -> anyhow::Result<CudaDevice> {
    let cache = Some(out.join("cache"));
    Ok(CudaDevice::open(ordinal, &CudaOptions { precision, cache, ..CudaOptions::default() })?)
}

/// A model from the host to the second device, and from the first device to it.
fn moves(
    (first, second, gpus): (&CudaDevice, &CudaDevice, usize),
    name: &str,
    table: &mut String,
) -> anyhow::Result<()> {
    let graph = at(&load(name)?, 1)?;
    let cut = segment(&graph, &WHOLE);
    let programs: Vec<Arc<dyn Program>> =
        [first, second].into_iter().map(|device| device.prepare(&graph, &cut)).collect::<Result<_, _>>()?;
    let weights = |place: usize| programs[place].weights().context("weights that move");
    let (from, to) = (weights(0)?, weights(1)?);
    let answer = |place: usize, device: &CudaDevice| -> anyhow::Result<Vec<u8>> {
        let program = &programs[place];
        let given = inputs(device, &**program)?;
        let found = run_through(&mut *device.open(PartitionId(0))?, program, given)?;
        let bytes = |output: &dyn Buffer| {
            let mut bytes = vec![0; output.spec().len()];
            output.read(0, &mut bytes).map(|()| bytes)
        };
        let all = found.iter().map(|output| bytes(&**output)).collect::<Result<Vec<_>, _>>()?;
        Ok(all.concat())
    };
    let expected = answer(0, first)?;
    let timed = |begin: &dyn Fn() -> anyhow::Result<()>| -> anyhow::Result<Vec<Span>> {
        let once = || {
            to.evict(Bytes(0))?;
            let start = Instant::now();
            begin()?;
            while !to.is_resident()? {
                std::hint::spin_loop();
            }
            Ok(Span::from(start.elapsed()))
        };
        (0..ROUNDS).map(|_| once()).collect()
    };
    let by_host = timed(&|| Ok(to.load(&[to.bytes()])?))?;
    let by_device = timed(&|| {
        anyhow::ensure!(to.load_from(&*from)?, "{name} did not come from the other device");
        Ok(())
    })?;
    anyhow::ensure!(answer(1, second)? == expected, "{name} answers otherwise where it was brought to");
    let ms = |spans: &[Span], per_mille| quantile(spans, per_mille).as_ms_f64();
    let (host_ms, device_ms) = (ms(&by_host, 500), ms(&by_device, 500));
    writeln!(
        table,
        "{name},{},{gpus},{host_ms:.4},{:.4},{device_ms:.4},{:.4},{:.2}",
        to.bytes().0,
        ms(&by_host, 950),
        ms(&by_device, 950),
        host_ms / device_ms
    )?;
    host::print(&format!(
        "{name:<14} {} from the host {host_ms:.3} ms, from the device {device_ms:.3} ms",
        to.bytes()
    ));
    Ok(())
}

/// Requests a second of a model on the first device, and on all.
fn serve(out: &Path, devices: &[Arc<dyn Device>], name: &str) -> anyhow::Result<()> {
    let models = std::env::temp_dir().join("raddle-several");
    serving::model(&models, name, BATCH, ("raddle.slo_us", 1_000_000))?;
    let choice = Choice::named("pipeswitch").context("a policy of that name")?;
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
    let mut table = String::from("devices,answers_per_s\n");
    for own in [&devices[..1], devices] {
        let runtime = serving::start(own, &models, Vec::new(), &choice, &Arc::default())?;
        let rate = tokio.block_on(saturate(&runtime.handle(), name, CLIENTS * own.len()))?;
        runtime.stop();
        writeln!(table, "{},{rate:.0}", own.len())?;
        host::print(&format!("{name} on {} device(s): {rate:.0} answers a second", own.len()));
    }
    Ok(std::fs::write(out.join("several-served.csv"), table)?)
}

/// Answers a second with so many requests of one row in flight.
async fn saturate(handle: &Handle, name: &str, clients: usize) -> anyhow::Result<f64> {
    let model = handle.model(name, None).with_context(|| format!("{name} is not served"))?;
    let given = crate::spine::live::inputs(&model, 1)?;
    let begin = Instant::now();
    let client = || {
        let (handle, model, given) = (handle.clone(), model.clone(), given.clone());
        tokio::spawn(async move {
            let mut answers = 0u32;
            while begin.elapsed() < ASKED {
                let (model, inputs) = (model.clone(), given.clone());
                let submission = Submission { model, inputs, rows: 1, class: None, timeout: None };
                let Ok(ticket) = handle.submit(submission) else { break };
                answers += u32::from(matches!(ticket.outcome().await, Outcome::Done(_)));
            }
            answers
        })
    };
    let clients: Vec<_> = (0..clients).map(|_| client()).collect();
    let mut answers = 0;
    for client in clients {
        answers += client.await?;
    }
    Ok(f64::from(answers) / begin.elapsed().as_secs_f64())
}
