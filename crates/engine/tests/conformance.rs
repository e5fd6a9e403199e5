//! The CPU backend under the suite that every backend must pass, and what is its own.

use engine::conformance::cases;
use engine::{CpuDevice, CpuError, Device, online_cores};

#[test]
fn the_cpu_backend_conforms() {
    let device = CpuDevice::whole().unwrap();
    let failures: Vec<String> = cases()
        .into_iter()
        .filter_map(|case| (case.run)(&device).err().map(|why| format!("{}: {why}", case.name)))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_partition_of_one_core_conforms() {
    let core = online_cores().unwrap()[0];
    let device = CpuDevice::with_cores(vec![vec![core]]).unwrap();
    assert_eq!(device.partitions()[0].units, 1);
    for case in cases() {
        assert_eq!((case.run)(&device), Ok(()), "{}", case.name);
    }
}

#[test]
fn core_sets_that_cannot_be_partitions_are_refused() {
    let core = online_cores().unwrap()[0];
    let of = |cores| CpuDevice::with_cores(cores).map(|_| ()).unwrap_err();
    assert_eq!(of(vec![]), CpuError::Empty(0));
    assert_eq!(of(vec![vec![core], vec![]]), CpuError::Empty(1));
    assert_eq!(of(vec![vec![core], vec![core]]), CpuError::Shared { core });
    assert!(matches!(of(vec![vec![100_000]]), CpuError::NoCore { core: 100_000, partition: 0, .. }));
}

#[test]
fn a_queue_stays_on_its_cores() {
    let core = *online_cores().unwrap().last().unwrap();
    let device = CpuDevice::with_cores(vec![vec![core]]).unwrap();
    let seen = std::thread::spawn(move || {
        let _queue = device.open(device.partitions()[0].id).unwrap();
        online_cores().unwrap()
    });
    assert_eq!(seen.join().unwrap(), [core]);
}
