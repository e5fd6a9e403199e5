//! On a GPU: the suite that every backend passes, and what is this backend's own. Fails without one.

use cuda::{CudaDevice, CudaError, CudaOptions, Precision};
use engine::conformance::cases;
use engine::{Device, EngineError, Run};
use graph::zoo::{self, ZooOptions};
use graph::{ImportLimits, Model, SegmentOptions, Sizes, segment};
use vocab::{Bytes, PartitionId};

fn options() -> CudaOptions {
    CudaOptions {
        precision: Precision::Fp32,
        weights: Bytes(64 << 20),
        slots: 2,
        slot: Bytes(256 << 20),
        cache: None,
    }
}

fn device() -> CudaDevice {
    CudaDevice::open(0, &options()).expect("these tests run on a machine with a GPU")
}

#[test]
fn the_cuda_backend_conforms() {
    let device = device();
    let failures: Vec<String> = cases()
        .into_iter()
        .filter_map(|case| (case.run)(&device).err().map(|why| format!("{}: {why}", case.name)))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn weights_leave_no_memory_behind() {
    let device = device();
    let file = zoo::build("tiny_transformer", &ZooOptions::default()).unwrap();
    let model = Model::from_bytes("tiny_transformer", zoo::encode(&file), &ImportLimits::default()).unwrap();
    let graph = model.at(&Sizes::batch(2)).unwrap();
    let program = device.prepare(&graph, &segment(&graph, &SegmentOptions::default())).unwrap();
    let mut queue = device.open(PartitionId(0)).unwrap();
    let weights = program.weights().unwrap();
    let free = device.weight_memory().unwrap().0;
    for _ in 0..20 {
        let inputs = program.inputs().iter().map(|spec| device.buffer(spec).unwrap()).collect();
        let mut run = Run::new(program.clone(), inputs).unwrap();
        while !run.is_launched() {
            run.launch(&mut *queue).unwrap();
        }
        // Weights in use stay.
        assert!(matches!(weights.evict(Bytes(0)), Err(EngineError::Residency { .. })));
        run.settle(&mut *queue).unwrap();
        run.finish().unwrap();
        weights.evict(Bytes(0)).unwrap();
        assert_eq!(device.weight_memory().unwrap().0, free);
    }
}

#[test]
fn what_does_not_fit_is_refused_with_the_numbers() {
    let available = cuda::devices();
    let missing = CudaDevice::open(available, &options()).map(|_| ()).unwrap_err();
    assert!(matches!(missing, CudaError::NoDevice { .. }), "{missing}");
    let greedy = CudaOptions { weights: Bytes(1 << 50), ..options() };
    let refused = CudaDevice::open(0, &greedy).map(|_| ()).unwrap_err();
    assert!(matches!(refused, CudaError::Memory { .. }), "{refused}");
}
