//! Device names and percentages, on machines that a fake tells of.

use super::*;
use cuda::{Instance, InstancesError, ManagedGpu, Mode};
use expect_test::expect;
use std::os::unix::net::UnixListener;
use vocab::Bytes;

struct Fake(Mode, usize);

impl Instances for Fake {
    fn gpus(&self) -> Result<Vec<ManagedGpu>, InstancesError> {
        let Self(mode, count) = *self;
        let instance = |ordinal| Instance {
            ordinal,
            gpu: 0,
            uuid: format!("MIG-0000000{ordinal}-aaaa-bbbb-cccc-00000000000f"),
            profile: format!("{}g.18gb", ordinal + 1),
            units: 16,
            memory: Bytes(16 << 30),
            gpu_slices: 1,
            compute_slices: 1,
        };
        Ok(vec![ManagedGpu {
            index: 0,
            kind: "NVIDIA H200".into(),
            uuid: "GPU-1".into(),
            memory: Bytes(141 << 30),
            mode,
            instances: (0..count).map(instance).collect(),
            profiles: Vec::new(),
        }])
    }
}

/// What a device and a percentage come to on a machine with two instances, where a daemon's folder is given.
fn told(device: &str, percentage: Option<u32>, fake: Fake, folder: &Daemon) -> String {
    match chosen(device, percentage, || Ok(Box::new(fake)), folder, None) {
        Ok(Chosen::Cpu) => "cpu".into(),
        Ok(Chosen::Cuda(Gpus::All, enclosure)) => format!("all {:?}", enclosure.variables()),
        Ok(Chosen::Cuda(gpus @ Gpus::These(_), enclosure)) => {
            format!("{:?} {:?}", gpus.ordinals().unwrap(), enclosure.variables())
        }
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn devices_are_found_by_name_or_refused() {
    let nowhere = Daemon::at("/nonexistent".into(), "none".into());
    let two = |device| told(device, None, Fake(Mode::On, 2), &nowhere);
    let lines = [
        two("cpu"),
        two("cuda"),
        two("cuda:3"),
        two("cuda:2,0"),
        two("cuda:all"),
        two("cuda:1,1"),
        two("cuda:0,"),
        two("mig"),
        two("mig:1"),
        two("mig:2g.18gb"),
        two("mig:7"),
        two("mig:MIG-1"),
        two("cpu:0"),
        two("cuda:x"),
        two("tpu"),
        two(""),
        told("mig:0", None, Fake(Mode::Off, 0), &nowhere),
        told("cpu", Some(10), Fake(Mode::Off, 0), &nowhere),
        told("cuda:0", Some(0), Fake(Mode::Off, 0), &nowhere),
    ];
    expect![[r#"
        cpu
        [0] []
        [3] []
        [2, 0] []
        all []
        "cuda:1,1" names device 1 twice
        "" in "cuda:0," is not a number: cannot parse integer from empty string
        [0] [("CUDA_VISIBLE_DEVICES", "MIG-00000000-aaaa-bbbb-cccc-00000000000f")]
        [0] [("CUDA_VISIBLE_DEVICES", "MIG-00000001-aaaa-bbbb-cccc-00000000000f")]
        [0] [("CUDA_VISIBLE_DEVICES", "MIG-00000001-aaaa-bbbb-cccc-00000000000f")]
        --device mig:7: no MIG instance is number 7; nearest: mig:0 (1g.18gb, 16 multiprocessors, MIG-00000000-aaaa-bbbb-cccc-00000000000f), mig:1 (2g.18gb, 16 multiprocessors, MIG-00000001-aaaa-bbbb-cccc-00000000000f)
        "MIG-1" names no MIG instance; write a number (mig:0), a UUID (mig:MIG-…) or a profile (mig:1g.18gb); `raddle parts` lists them
        no device is called "cpu:0"; name cpu, cuda:N, cuda:N,N, cuda:all or mig:NAME
        "x" in "cuda:x" is not a number: invalid digit found in string
        no device is called "tpu"; name cpu, cuda:N, cuda:N,N, cuda:all or mig:NAME
        no device is called ""; name cpu, cuda:N, cuda:N,N, cuda:all or mig:NAME
        --device mig:0: there are no MIG instances: GPU 0 (NVIDIA H200) has MIG mode off (an administrator turns it on while it is idle); nearest: cuda:N with --gpu-grid, --gpu-parts or --mps-percentage
        --mps-percentage goes with --device cuda:N or --device mig:NAME
        MPS has no percentage 0; there are 1 to 100, nearest: 1"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn a_percentage_of_an_instance_is_both_variables() {
    let path = std::env::temp_dir().join(format!("raddle-confine-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    let daemon = Daemon::at(path.clone(), "none".into());
    let refused = told("mig:1", Some(50), Fake(Mode::On, 2), &daemon);
    assert!(
        refused.contains("CUDA_VISIBLE_DEVICES=MIG-00000001-aaaa-bbbb-cccc-00000000000f nvidia-cuda"),
        "{refused}"
    );
    let listener = UnixListener::bind(path.join("control")).unwrap();
    let lines = [
        told("mig:1", Some(50), Fake(Mode::On, 2), &daemon),
        told("cuda:0", Some(100), Fake(Mode::Off, 0), &daemon),
        // Whoever finds a daemon is its client.
        told("mig:0", None, Fake(Mode::On, 2), &daemon),
    ];
    drop(listener);
    std::fs::remove_dir_all(path).unwrap();
    expect![[r#"
        [0] [("CUDA_VISIBLE_DEVICES", "MIG-00000001-aaaa-bbbb-cccc-00000000000f"), ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50")]
        [0] [("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100")]
        [0] [("CUDA_VISIBLE_DEVICES", "MIG-00000000-aaaa-bbbb-cccc-00000000000f"), ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100")]"#]].assert_eq(&lines.join("\n"));
}
