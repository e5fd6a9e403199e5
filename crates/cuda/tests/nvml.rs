//! The management library's calls, against a library that stands in for NVIDIA's (`examples/fake_nvml.rs`).

use cuda::{InstanceName, Instances as _, ManagedGpu, Nvml, choose};
use expect_test::expect;
use std::path::PathBuf;

/// The library that cargo built beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("tests lie two folders deep");
    folder.join("examples").join("libfake_nvml.so")
}

#[test]
fn gpus_instances_and_profiles_are_read() {
    let nvml = Nvml::at(library()).expect("`cargo test -p cuda` builds the example too");
    let gpus = nvml.gpus().expect("it answers");
    let lines = gpus.iter().flat_map(|gpu| {
        let own = ManagedGpu { instances: Vec::new(), profiles: Vec::new(), ..gpu.clone() };
        let instances = gpu.instances.iter().map(|instance| format!("{instance:?}"));
        let profiles = gpu.profiles.iter().map(|profile| format!("{profile:?}"));
        std::iter::once(format!("{own:?}")).chain(instances).chain(profiles).collect::<Vec<_>>()
    });
    expect![[r#"
        ManagedGpu { index: 0, kind: "NVIDIA H200", uuid: "GPU-00000001-aaaa-bbbb-cccc-00000000000f", memory: Bytes(150754820096), mode: Off, instances: [], profiles: [] }
        ManagedGpu { index: 2, kind: "NVIDIA H200", uuid: "GPU-00000003-aaaa-bbbb-cccc-00000000000f", memory: Bytes(150754820096), mode: On, instances: [], profiles: [] }
        Instance { ordinal: 0, gpu: 2, uuid: "MIG-00000010-aaaa-bbbb-cccc-00000000000f", profile: "1g.18gb", units: 16, memory: Bytes(17179869184), gpu_slices: 1, compute_slices: 1 }
        Instance { ordinal: 1, gpu: 2, uuid: "MIG-00000012-aaaa-bbbb-cccc-00000000000f", profile: "1c.3g.71gb", units: 20, memory: Bytes(75161927680), gpu_slices: 3, compute_slices: 1 }
        Profile { name: "1g.18gb", units: 16, memory: Bytes(17179869184), most: 7, free: Some(4) }
        Profile { name: "7g.141gb", units: 132, memory: Bytes(151397597184), most: 1, free: None }"#]].assert_eq(&lines.collect::<Vec<_>>().join("\n"));
    let wanted = InstanceName::parse("1c.3g.71gb").expect("a profile");
    let found = choose(&gpus, &wanted).expect("one has it");
    assert_eq!(found.uuid, "MIG-00000012-aaaa-bbbb-cccc-00000000000f");
}

#[test]
fn another_library_is_no_management_library() {
    let refused = ["libc.so.6", "libno-such-library.so.1"].map(|name| match Nvml::at(name) {
        Ok(_) => "found".into(),
        Err(error) => error.to_string(),
    });
    expect![[r#"
        NVIDIA's management library knows no nvmlInit_v2; a newer driver does
        NVIDIA's management library (libno-such-library.so.1) was not found; it comes with the driver"#]]
    .assert_eq(&refused.join("\n"));
}
