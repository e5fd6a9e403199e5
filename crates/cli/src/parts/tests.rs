//! The listing, of machines that are written down here.

use super::*;
use cuda::PartsOffered;
use expect_test::{Expect, expect};

const CORES: [usize; 3] = [0, 1, 5];

fn h200(parts: bool) -> Offer {
    let parts = parts.then_some(PartsOffered { step: 8, units: 128 });
    Offer { kind: "NVIDIA H200".into(), units: 132, memory: Bytes(150_000_000_000), parts }
}

fn gpu(mode: Mode) -> ManagedGpu {
    let (kind, uuid, memory) = ("NVIDIA H200".into(), "GPU-1".into(), Bytes(150_000_000_000));
    ManagedGpu { index: 0, kind, uuid, memory, mode, instances: Vec::new(), profiles: Vec::new() }
}

fn instance(ordinal: usize, profile: &str, units: u32, (gpu_slices, compute_slices): (u32, u32)) -> Instance {
    let uuid = format!("MIG-0000000{ordinal}-aaaa-bbbb-cccc-00000000000f");
    let memory = Bytes(u64::from(gpu_slices) << 34);
    Instance { ordinal, gpu: 0, uuid, profile: profile.into(), units, memory, gpu_slices, compute_slices }
}

fn check(facts: &Facts, expected: &Expect) {
    expected.assert_eq(&output::table(&COLUMNS, rows(facts).iter().map(cells)));
}

#[test]
fn a_machine_without_a_gpu_has_cores() {
    let facts = Facts { cores: Some((CORES.to_vec(), Bytes(16 << 30))), ..Facts::default() };
    check(
        &facts,
        &expect![[r#"
        part                           what  units  step      size           beside  compute  cache  bandwidth  copies  memory  faults
        cpu                     cores 0-1,5      3     -  16.0 GiB  other processes       no     no         no      no      no     yes
        cpu --cpu-partitions  sets of cores      3     1         -       other sets      yes     no         no      no      no      no"#]],
    );
}

#[test]
fn a_gpu_with_mig_off_has_parts_and_mps() {
    let absent = DaemonState::Absent("there is no /tmp/nvidia-mps/control".into());
    let facts = Facts {
        offers: vec![(0, h200(true)), (1, h200(false))],
        gpus: vec![gpu(Mode::Off), ManagedGpu { index: 1, ..gpu(Mode::Unsupported) }],
        daemon: Some(absent),
        ..Facts::default()
    };
    check(
        &facts,
        &expect![[r#"
            part                                                                         what  units  step       size               beside  compute  cache  bandwidth  copies  memory  faults
            cuda:0                                                                NVIDIA H200    132     -  139.7 GiB      other processes       no     no         no      no      no     yes
            cuda:0 --gpu-grid, --gpu-parts                                     green contexts    128     8          -          other parts      yes     no         no      no      no      no
            cuda:0 --mps-percentage            no daemon: there is no /tmp/nvidia-mps/control      -     -          -    other MPS clients       no     no         no      no      no      no
            cuda:1                                                                NVIDIA H200    132     -  139.7 GiB      other processes       no     no         no      no      no     yes
            cuda:1 --gpu-grid, --gpu-parts  not to be had: the driver knows no green contexts      -     -          -          other parts        -      -          -       -       -       -
            cuda:1 --mps-percentage            no daemon: there is no /tmp/nvidia-mps/control      -     -          -    other MPS clients       no     no         no      no      no      no
            mig: on GPU 0                                          NVIDIA H200 GPU-1: MIG off      -     -  139.7 GiB  other MIG instances        -      -          -       -       -       -
            mig: on GPU 1                      NVIDIA H200 GPU-1: MIG not on this kind of GPU      -     -  139.7 GiB  other MIG instances        -      -          -       -       -       -"#]],
    );
}

#[test]
fn instances_and_profiles_are_listed() {
    let profile = |name: &str, units, free| Profile {
        name: name.into(),
        units,
        memory: Bytes(16 << 30),
        most: 7,
        free,
    };
    let mut divided = gpu(Mode::On);
    divided.instances = vec![instance(0, "1g.18gb", 16, (1, 1)), instance(1, "1c.3g.71gb", 20, (3, 1))];
    divided.profiles = vec![profile("1g.18gb", 16, Some(3)), profile("3g.71gb", 60, None)];
    let facts = Facts { gpus: vec![divided, gpu(Mode::On)], ..Facts::default() };
    check(
        &facts,
        &expect![[r#"
            part                                                          what  units  step       size                   beside  compute  cache  bandwidth  copies  memory  faults
            mig: on GPU 0        NVIDIA H200 GPU-1: MIG on, 2 instance(s) made      -     -  139.7 GiB      other MIG instances        -      -          -       -       -       -
            mig:0             1g.18gb MIG-00000000-aaaa-bbbb-cccc-00000000000f     16     -   16.0 GiB      other MIG instances      yes    yes        yes     yes     yes     yes
            mig:1          1c.3g.71gb MIG-00000001-aaaa-bbbb-cccc-00000000000f     20     -   48.0 GiB  other compute instances      yes     no         no      no      no      no
            mig:1          1c.3g.71gb MIG-00000001-aaaa-bbbb-cccc-00000000000f     20     -   48.0 GiB      other MIG instances      yes    yes        yes     yes     yes     yes
            mig:1g.18gb                 profile on GPU 0: room for 3 more of 7     16     -   16.0 GiB      other MIG instances      yes    yes        yes     yes     yes     yes
            mig:3g.71gb                            profile on GPU 0: at most 7     60     -   16.0 GiB      other MIG instances      yes    yes        yes     yes     yes     yes
            mig: on GPU 0        NVIDIA H200 GPU-1: MIG on, 0 instance(s) made      -     -  139.7 GiB      other MIG instances        -      -          -       -       -       -"#]],
    );
}

#[test]
fn a_percentage_of_an_instance_is_listed_with_both_neighbours() {
    let facts = |percentage: Option<u32>| Facts {
        offers: vec![(0, Offer { units: 8, ..h200(true) })],
        daemon: Some(DaemonState::Answers(Some(Percentage::ALL))),
        enclosure: Enclosure {
            instance: Some(instance(2, "1g.18gb", 16, (1, 1))),
            percentage: percentage.map(|percentage| Percentage::new(percentage).unwrap()),
        },
        ..Facts::default()
    };
    check(
        &facts(Some(50)),
        &expect![[r#"
            part                                                                            what  units  step       size               beside  compute  cache  bandwidth  copies  memory  faults
            mig:2 --mps-percentage 50                                                NVIDIA H200      8     -  139.7 GiB    other MPS clients       no     no         no      no      no      no
            mig:2 --mps-percentage 50                                                NVIDIA H200      8     -  139.7 GiB  other MIG instances      yes    yes        yes     yes     yes     yes
            mig:2 --mps-percentage 50 --gpu-grid, --gpu-parts  not to be had: MPS overrules them      -     -          -          other parts        -      -          -       -       -       -"#]],
    );
    check(
        &facts(None),
        &expect![[r#"
            part                                                   what  units  step       size               beside  compute  cache  bandwidth  copies  memory  faults
            mig:2                                           NVIDIA H200      8     -  139.7 GiB  other MIG instances      yes    yes        yes     yes     yes     yes
            mig:2 --gpu-grid, --gpu-parts                green contexts    128     8          -          other parts      yes     no         no      no      no      no
            mig:2 --mps-percentage         1 to 100 %, a daemon answers      -     -          -    other MPS clients       no     no         no      no      no      no"#]],
    );
}

#[test]
fn a_row_in_json_has_every_isolation() {
    let facts = Facts { cores: Some((CORES.to_vec(), Bytes(1))), ..Facts::default() };
    let row = rows(&facts).pop().unwrap();
    expect![[r#"
        {
          "part": "cpu --cpu-partitions",
          "what": "sets of cores",
          "units": 3,
          "step": 1,
          "bytes": null,
          "beside": "other sets",
          "isolates": {
            "bandwidth": false,
            "cache": false,
            "compute": true,
            "copies": false,
            "faults": false,
            "memory": false
          }
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&row).unwrap());
}

#[test]
fn cores_are_shown_as_ranges() {
    assert_eq!([ranges(&[]), ranges(&[3]), ranges(&[0, 1, 2, 4, 6, 7])], ["", "3", "0-2,4,6-7"]);
}
