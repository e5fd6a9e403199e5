//! Parts of a device to measure on, each with a thread of its own that keeps its queue: a partition's queue pins its thread.

use anyhow::{Context as _, bail};
use engine::{CpuDevice, Device, EngineError, PartitionInfo, Program, Queue, online_cores};
use server::live::{Calibration, measure};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use vocab::{PartitionId, Span};

/// A part that can be measured on.
#[derive(Clone)]
pub(super) struct Part {
    /// Cores or multiprocessors it has.
    pub(super) units: u32,
    /// The device whose partition it is.
    pub(super) device: Arc<dyn Device>,
    pub(super) partition: PartitionId,
}

impl Part {
    fn of(device: &Arc<dyn Device>, own: &PartitionInfo) -> Self {
        Self { units: own.units, device: device.clone(), partition: own.id }
    }
}

/// What a worker does with its queue.
type Order = Box<dyn FnOnce(&dyn Device, &mut dyn Queue) + Send>;

/// A part's thread.
pub(super) struct Worker {
    pub(super) units: u32,
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

/// Nested parts of the processor: the first so many of `cores`, for each number in `sizes`, ascending, all of them last.
pub(super) fn of_cores(cores: &[usize], sizes: &[u32]) -> anyhow::Result<Vec<Part>> {
    let whole = u32::try_from(cores.len())?;
    let mut sizes = if sizes.is_empty() { halves(whole) } else { sizes.to_vec() };
    sizes.push(whole);
    sizes.sort_unstable();
    sizes.dedup();
    let wrong: Vec<String> =
        sizes.iter().filter(|size| **size == 0 || **size > whole).map(ToString::to_string).collect();
    if !wrong.is_empty() {
        bail!("there are no parts of {} cores of {whole}", wrong.join(", "));
    }
    if sizes.len() < 2 {
        bail!("one core has no smaller part; measure on more cores");
    }
    let part = |size: &u32| {
        let device = CpuDevice::with_cores(vec![cores[..usize::try_from(*size)?].to_vec()])?;
        Ok(Part { units: *size, partition: device.partitions()[0].id, device: Arc::new(device) })
    };
    sizes.iter().map(part).collect()
}

/// The whole, its half, and so on down to 1; every number up to 8.
fn halves(whole: u32) -> Vec<u32> {
    let mut sizes: Vec<u32> = (1..=whole.min(8)).collect();
    let mut size = whole;
    while size > 8 {
        sizes.push(size);
        size /= 2;
    }
    sizes
}

/// The partitions of a device, ascending by units.
pub(super) fn of_device(name: &str, device: &Arc<dyn Device>) -> anyhow::Result<Vec<Part>> {
    let own = device.partitions();
    if let [only] = own {
        bail!("{name} offers one partition, of {} units; there is no smaller part to measure on", only.units);
    }
    let mut parts: Vec<Part> = own.iter().map(|own| Part::of(device, own)).collect();
    parts.sort_by_key(|part| part.units);
    parts.dedup_by_key(|part| part.units);
    Ok(parts)
}

/// Two parts of the processor: the halves of `cores`, or twice all of them.
pub(super) fn two_of_cores(cores: &[usize], shared: bool) -> anyhow::Result<[Part; 2]> {
    let device: Arc<dyn Device> = if shared {
        Arc::new(CpuDevice::with_overlapping_cores(vec![cores.to_vec(), cores.to_vec()], 2)?)
    } else {
        if cores.len() < 2 {
            bail!("two models need a core each; measure on more cores");
        }
        let (first, second) = cores.split_at(cores.len() / 2);
        Arc::new(CpuDevice::with_cores(vec![first.to_vec(), second.to_vec()])?)
    };
    let part = |at: usize| Part::of(&device, &device.partitions()[at]);
    Ok([part(0), part(1)])
}

/// Two partitions of a device with nothing in common, or with units that both have.
pub(super) fn two_of_device(name: &str, device: &Arc<dyn Device>, shared: bool) -> anyhow::Result<[Part; 2]> {
    let own = device.partitions();
    let half = device.units() / 2;
    match PartitionInfo::two(own, shared) {
        Some((first, second)) => Ok([Part::of(device, first), Part::of(device, second)]),
        None if shared => bail!(
            "no two parts of {name} have units in common; give --gpu-overlap 2 for two streams of the whole device, or for \
             example --gpu-parts \"0-{}x2\"",
            half.max(1) - 1
        ),
        None => bail!(
            "no two parts of {name} are disjoint; give two, for example --gpu-parts \"0-{};{half}-{}\"",
            half.max(1) - 1,
            (2 * half).max(1) - 1
        ),
    }
}

/// The cores that an argument names, or all that there are.
pub(super) fn cores(named: Option<&str>) -> anyhow::Result<Vec<usize>> {
    match named {
        Some(text) => crate::serve::cores(text),
        None => Ok(online_cores()?),
    }
}

impl Worker {
    /// Starts the part's thread and opens its queue there.
    pub(super) fn start(part: &Part) -> anyhow::Result<Self> {
        let (orders, inbox): (Sender<Order>, Receiver<Order>) = channel();
        let (opened, outcome) = channel();
        let Part { units, device, partition } = part.clone();
        let work = move || {
            let mut queue = match device.open(partition) {
                Ok(queue) => queue,
                Err(why) => {
                    let _ = opened.send(Err(why));
                    return;
                }
            };
            // The starter waits for this; if it is gone, so are its orders.
            let _ = opened.send(Ok(()));
            for order in inbox {
                order(&*device, &mut *queue);
            }
        };
        let thread =
            Builder::new().name(format!("{partition}")).spawn(work).context("cannot start a thread")?;
        outcome.recv().context("a part's thread ended early")??;
        Ok(Self { units, orders: Some(orders), thread: Some(thread) })
    }

    /// Begins something on the part; its outcome arrives later.
    pub(super) fn begin<T: Send + 'static>(
        &self,
        what: impl FnOnce(&dyn Device, &mut dyn Queue) -> T + Send + 'static,
    ) -> anyhow::Result<Receiver<T>> {
        let (answer, outcome) = channel();
        let order: Order = Box::new(move |device, queue| {
            // Whoever asked may have gone.
            let _ = answer.send(what(device, queue));
        });
        let orders = self.orders.as_ref().context("a part's thread has been stopped")?;
        orders.send(order).ok().context("a part's thread ended early")?;
        Ok(outcome)
    }

    /// Median time of each segment of a program on the part, which has to be idle.
    pub(super) fn measure(
        &self,
        program: &Arc<dyn Program>,
        calibration: Calibration,
    ) -> anyhow::Result<Vec<Span>> {
        let program = program.clone();
        let outcome = self.begin(move |device, queue| -> Result<Vec<Span>, EngineError> {
            queue.warm(&*program, false)?;
            measure(device, queue, &program, calibration)
        })?;
        Ok(outcome.recv().context("a part's thread ended early")??)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has already said so.
            let _ = thread.join();
        }
    }
}
