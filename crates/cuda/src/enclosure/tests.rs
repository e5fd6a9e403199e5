//! What can be had and what is refused, on machines that a fake tells of and folders that stand in for a daemon's.

use super::instances::beside;
use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use vocab::Bytes;

/// A machine as the management library would tell of it.
struct Fake(Vec<ManagedGpu>);

impl Instances for Fake {
    fn gpus(&self) -> Result<Vec<ManagedGpu>, InstancesError> {
        Ok(self.0.clone())
    }
}

fn gpu(index: u32, mode: Mode) -> ManagedGpu {
    let uuid = format!("GPU-0000000{index}-0000-0000-0000-000000000000");
    let (kind, memory) = ("NVIDIA H200".into(), Bytes(141 << 30));
    ManagedGpu { index, kind, uuid, memory, mode, instances: Vec::new(), profiles: Vec::new() }
}

fn uuid(ordinal: usize) -> String {
    format!("MIG-0000000{ordinal}-aaaa-bbbb-cccc-00000000000f")
}

fn instance(ordinal: usize, profile: &str, units: u32, slices: (u32, u32)) -> Instance {
    let (gpu_slices, compute_slices) = slices;
    let (uuid, profile, memory) = (uuid(ordinal), profile.into(), Bytes(u64::from(gpu_slices) << 34));
    Instance { ordinal, gpu: 0, uuid, profile, units, memory, gpu_slices, compute_slices }
}

fn profile(name: &str, units: u32, free: Option<u32>) -> Profile {
    Profile { name: name.into(), units, memory: Bytes(1 << 34), most: 7, free }
}

/// One GPU undivided, one with three instances, one of them shared by compute instances.
fn divided() -> Fake {
    let mut second = gpu(1, Mode::On);
    second.instances = vec![
        instance(0, "1g.18gb", 16, (1, 1)),
        instance(1, "1g.18gb", 16, (1, 1)),
        instance(2, "1c.3g.71gb", 20, (3, 1)),
    ];
    second.profiles =
        vec![profile("1g.18gb", 16, Some(2)), profile("2g.35gb", 32, Some(0)), profile("3g.71gb", 60, None)];
    Fake(vec![gpu(0, Mode::Off), second])
}

/// What a name comes to on a machine.
fn told(machine: &Fake, name: &str) -> String {
    let gpus = machine.gpus().expect("a fake tells everything");
    match InstanceName::parse(name).and_then(|name| choose(&gpus, &name)) {
        Ok(instance) => format!("{name}: {} {}", instance.ordinal, instance.profile),
        Err(refusal) => format!("{name}: {refusal}"),
    }
}

fn check(machine: &Fake, names: &[&str], expected: &Expect) {
    let lines: Vec<String> = names.iter().map(|name| told(machine, name)).collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn instances_are_found_by_number_uuid_and_profile() {
    let (with, without) = (uuid(1), uuid(2).replace("MIG-", "").to_uppercase());
    check(
        &divided(),
        &["0", &with, &without, "1c.3g.71gb", "1C.3G.71GB"],
        &expect![[r#"
            0: 0 1g.18gb
            MIG-00000001-aaaa-bbbb-cccc-00000000000f: 1 1g.18gb
            00000002-AAAA-BBBB-CCCC-00000000000F: 2 1c.3g.71gb
            1c.3g.71gb: 2 1c.3g.71gb
            1C.3G.71GB: 2 1c.3g.71gb"#]],
    );
}

#[test]
fn what_is_not_there_is_refused_with_what_is() {
    let unknown = uuid(7);
    check(
        &divided(),
        &["3", &unknown, "1g.18gb", "2g.35gb", "3g.71gb", "4g.71gb", "1c.2g.35gb"],
        &expect![[r#"
            3: no MIG instance is number 3; nearest: mig:0 (1g.18gb, 16 multiprocessors, MIG-00000000-aaaa-bbbb-cccc-00000000000f), mig:1 (1g.18gb, 16 multiprocessors, MIG-00000001-aaaa-bbbb-cccc-00000000000f), mig:2 (1c.3g.71gb, 20 multiprocessors, MIG-00000002-aaaa-bbbb-cccc-00000000000f)
            MIG-00000007-aaaa-bbbb-cccc-00000000000f: no MIG instance is MIG-00000007-aaaa-bbbb-cccc-00000000000f; nearest: mig:0 (1g.18gb, 16 multiprocessors, MIG-00000000-aaaa-bbbb-cccc-00000000000f), mig:1 (1g.18gb, 16 multiprocessors, MIG-00000001-aaaa-bbbb-cccc-00000000000f), mig:2 (1c.3g.71gb, 20 multiprocessors, MIG-00000002-aaaa-bbbb-cccc-00000000000f)
            1g.18gb: several MIG instances are 1g.18gb: mig:0 (1g.18gb, 16 multiprocessors, MIG-00000000-aaaa-bbbb-cccc-00000000000f), mig:1 (1g.18gb, 16 multiprocessors, MIG-00000001-aaaa-bbbb-cccc-00000000000f); name one of them
            2g.35gb: no MIG instance is 2g.35gb, for which there is no room beside the others; nearest: mig:0 (1g.18gb, 16 multiprocessors, MIG-00000000-aaaa-bbbb-cccc-00000000000f), mig:2 (1c.3g.71gb, 20 multiprocessors, MIG-00000002-aaaa-bbbb-cccc-00000000000f)
            3g.71gb: no MIG instance is 3g.71gb, which a GPU here can have but an administrator has not made; nearest: mig:2 (1c.3g.71gb, 20 multiprocessors, MIG-00000002-aaaa-bbbb-cccc-00000000000f)
            4g.71gb: no MIG instance is 4g.71gb, which no GPU here can have; nearest: mig:2 (1c.3g.71gb, 20 multiprocessors, MIG-00000002-aaaa-bbbb-cccc-00000000000f)
            1c.2g.35gb: no MIG instance is 1c.2g.35gb; nearest: mig:0 (1g.18gb, 16 multiprocessors, MIG-00000000-aaaa-bbbb-cccc-00000000000f), mig:2 (1c.3g.71gb, 20 multiprocessors, MIG-00000002-aaaa-bbbb-cccc-00000000000f)"#]],
    );
}

#[test]
fn machines_without_instances_say_why() {
    let unmade = |profiles| Fake(vec![ManagedGpu { profiles, ..gpu(0, Mode::On) }]);
    let machines = [
        Fake(Vec::new()),
        Fake(vec![gpu(0, Mode::Off)]),
        Fake(vec![gpu(0, Mode::Unsupported), gpu(1, Mode::Off)]),
        unmade(Vec::new()),
        unmade(vec![profile("1g.18gb", 16, Some(7)), profile("7g.141gb", 132, Some(1))]),
    ];
    let lines: Vec<String> = machines.iter().map(|machine| told(machine, "0")).collect();
    expect![[r#"
        0: there is no GPU with MIG instances here: the management library lists none
        0: there are no MIG instances: GPU 0 (NVIDIA H200) has MIG mode off (an administrator turns it on while it is idle); nearest: cuda:N with --gpu-grid, --gpu-parts or --mps-percentage
        0: there are no MIG instances: GPU 0 (NVIDIA H200) does not know MIG, GPU 1 (NVIDIA H200) has MIG mode off (an administrator turns it on while it is idle); nearest: cuda:N with --gpu-grid, --gpu-parts or --mps-percentage
        0: MIG is on, but no instance has been made; an administrator makes one with nvidia-smi mig -cgi PROFILE -C
        0: MIG is on, but no instance has been made (1g.18gb, 7g.141gb); an administrator makes one with nvidia-smi mig -cgi PROFILE -C"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn names_that_are_none_are_refused() {
    let names = [
        "",
        "x",
        "-1",
        "MIG-",
        "MIG-1234",
        "MIG-0000000g-aaaa-bbbb-cccc-00000000000f",
        "MIG-GPU-1/0/0",
        "0000000-0000-0000-0000-000000000000",
        "1g",
        "0g.18gb",
        "1g.gb",
        "1g.18",
        "g.18gb",
        "1c.1g.18gb.2",
        "é",
    ];
    for name in names {
        assert_eq!(InstanceName::parse(name), Err(InstanceRefusal::NotAName(name.into())));
    }
    for name in ["1g.18gb", "1g.18gb+me", "1g.18gb-me", "1g.12gb+me.all", "7g.141gb"] {
        assert_eq!(InstanceName::parse(name), Ok(InstanceName::Profile(name.into())));
    }
}

#[test]
fn percentages_out_of_range_are_refused_with_the_nearest() {
    let lines = [0, 101, u32::MAX].map(|percentage| Percentage::new(percentage).unwrap_err().to_string());
    expect![[r#"
        MPS has no percentage 0; there are 1 to 100, nearest: 1
        MPS has no percentage 101; there are 1 to 100, nearest: 100
        MPS has no percentage 4294967295; there are 1 to 100, nearest: 100"#]]
    .assert_eq(&lines.join("\n"));
    assert_eq!(Percentage::new(1).map(Percentage::value), Ok(1));
    assert_eq!(Percentage::new(100), Ok(Percentage::ALL));
}

/// A folder that goes with the test, with a short path: sockets' names are short.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("raddle-mps-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn daemon(&self, program: &str) -> Daemon {
        Daemon::at(self.0.clone(), Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(program))
    }

    /// Text with this folder's name taken out.
    fn shown(&self, text: impl std::fmt::Display) -> String {
        text.to_string().replace(&self.0.display().to_string(), "FOLDER")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[test]
fn a_daemon_that_does_not_answer_is_told_from_one_that_does() {
    let folder = Folder::new();
    let daemon = folder.daemon("nvidia-cuda-mps-control");
    let absent = daemon.state();
    let control = folder.0.join("control");
    let listener = UnixListener::bind(&control).unwrap();
    let present = daemon.state();
    let unasked = folder.daemon("no-such-program").state();
    let silent = folder.daemon("says-nothing").state();
    drop(listener);
    assert!(control.exists(), "the file outlives its daemon");
    let stale = daemon.state();
    let long = Daemon::at(folder.0.join("x".repeat(120)), "none".into()).state();
    let lines = [absent, present, unasked, silent, stale].map(|state| folder.shown(format!("{state:?}")));
    expect![[r#"
        Absent("there is no FOLDER/control")
        Answers(Some(Percentage(75)))
        Answers(None)
        Answers(None)
        Absent("nobody listens on FOLDER/control any more")"#]]
    .assert_eq(&lines.join("\n"));
    assert!(matches!(long, DaemonState::Absent(why) if why.contains("cannot be asked")));
}

#[test]
fn a_percentage_is_refused_without_a_daemon_and_above_its_limit() {
    let folder = Folder::new();
    let daemon = folder.daemon("nvidia-cuda-mps-control");
    let of = |percentage| Percentage::new(percentage).unwrap();
    let alone = daemon.check(of(40), None).unwrap_err();
    let on_instance = daemon.check(of(40), Some(&uuid(1))).unwrap_err();
    let default =
        Daemon::at("/nonexistent-by-default".into(), "none".into()).check(of(40), None).unwrap_err();
    let _listener = UnixListener::bind(folder.0.join("control")).unwrap();
    let above = daemon.check(of(80), None).unwrap_err();
    let lines = [alone, on_instance, default, above].map(|refusal| folder.shown(refusal));
    expect![[r#"
        an MPS percentage needs a control daemon, and there is no FOLDER/control; start one:
          export CUDA_MPS_PIPE_DIRECTORY=FOLDER CUDA_MPS_LOG_DIRECTORY=FOLDER-log
          mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
          nvidia-cuda-mps-control -d
        then give this command again in the same shell; `echo quit | nvidia-cuda-mps-control` ends the daemon

        an MPS percentage needs a control daemon, and there is no FOLDER/control; start one:
          export CUDA_MPS_PIPE_DIRECTORY=FOLDER CUDA_MPS_LOG_DIRECTORY=FOLDER-log
          mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
          CUDA_VISIBLE_DEVICES=MIG-00000001-aaaa-bbbb-cccc-00000000000f nvidia-cuda-mps-control -d
        then give this command again in the same shell; `echo quit | nvidia-cuda-mps-control` ends the daemon

        an MPS percentage needs a control daemon, and there is no /nonexistent-by-default/control; start one:
          export CUDA_MPS_PIPE_DIRECTORY=/nonexistent-by-default CUDA_MPS_LOG_DIRECTORY=/nonexistent-by-default-log
          mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
          nvidia-cuda-mps-control -d
        then give this command again in the same shell; `echo quit | nvidia-cuda-mps-control` ends the daemon

        the MPS daemon limits its clients to 75 %, 80 % cannot be had; nearest: 75"#]].assert_eq(&lines.join("\n\n"));
    assert_eq!(daemon.check(of(75), None), Ok(()));
    assert_eq!(folder.daemon("no-such-program").check(of(80), None), Ok(()));
    // Whoever finds a daemon is its client, asked or not.
    let implied = |program, set| folder.daemon(program).implied(set).map(Percentage::value);
    assert_eq!(implied("nvidia-cuda-mps-control", None), Some(75));
    assert_eq!(implied("nvidia-cuda-mps-control", Some("30")), Some(30));
    assert_eq!(implied("no-such-program", Some("x")), Some(100));
    assert_eq!(Daemon::at("/nonexistent-by-default".into(), "none".into()).implied(Some("30")), None);
}

#[test]
fn an_enclosure_is_variables_that_contradict_none() {
    let whole = Enclosure::default();
    let both = Enclosure {
        instance: Some(instance(0, "1g.18gb", 16, (1, 1))),
        percentage: Some(Percentage::new(30).unwrap()),
    };
    assert!(whole.is_whole() && whole.variables().is_empty());
    let missing = |set: &[(&str, &str)]| {
        let look_up = |name: &str| {
            let found = set.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        match both.missing(look_up) {
            Ok(missing) => format!("{missing:?}"),
            Err(error) => error.to_string(),
        }
    };
    let uuid = uuid(0);
    let lines = [
        missing(&[]),
        missing(&[(VISIBLE, &uuid)]),
        missing(&[(VISIBLE, &uuid), (PERCENTAGE, "30")]),
        missing(&[(VISIBLE, "0")]),
        missing(&[(VISIBLE, &uuid), (PERCENTAGE, "20")]),
    ];
    expect![[r#"
        [("CUDA_VISIBLE_DEVICES", "MIG-00000000-aaaa-bbbb-cccc-00000000000f"), ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "30")]
        [("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "30")]
        []
        CUDA_VISIBLE_DEVICES is "0" already, "MIG-00000000-aaaa-bbbb-cccc-00000000000f" is asked for; unset it
        CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is "20" already, "30" is asked for; unset it"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn what_is_around_is_said_from_the_inside_out() {
    let of = |instance, percentage: Option<u32>| Enclosure {
        instance,
        percentage: percentage.map(|percentage| Percentage::new(percentage).unwrap()),
    };
    let full = || Some(instance(0, "2g.35gb", 32, (2, 2)));
    let half = || Some(instance(3, "1c.2g.35gb", 16, (2, 1)));
    let enclosures =
        [of(None, None), of(None, Some(40)), of(full(), None), of(half(), None), of(half(), Some(50))];
    let told = |enclosure: &Enclosure| {
        let around = enclosure.surroundings();
        let around = around.iter().map(|beside| format!("\n  {}: {}", beside.others, beside.capabilities));
        enclosure.name(1) + &around.collect::<String>()
    };
    let lines: Vec<String> = enclosures.iter().map(told).collect();
    expect![[r#"
        cuda:1
          other processes: isolates faults; shares compute, cache, bandwidth, copies, memory
        cuda:1 MPS 40 %
          other MPS clients: isolates nothing; shares compute, cache, bandwidth, copies, memory, faults
        mig:0 2g.35gb
          other MIG instances: isolates compute, cache, bandwidth, copies, memory, faults; shares nothing
        mig:3 1c.2g.35gb
          other compute instances: isolates compute; shares cache, bandwidth, copies, memory, faults
          other MIG instances: isolates compute, cache, bandwidth, copies, memory, faults; shares nothing
        mig:3 1c.2g.35gb MPS 50 %
          other MPS clients: isolates nothing; shares compute, cache, bandwidth, copies, memory, faults
          other compute instances: isolates compute; shares cache, bandwidth, copies, memory, faults
          other MIG instances: isolates compute, cache, bandwidth, copies, memory, faults; shares nothing"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn parts_and_a_percentage_exclude_each_other() {
    use crate::parts::PartWanted;
    let limited =
        |percentage| Enclosure { instance: None, percentage: Some(Percentage::new(percentage).unwrap()) };
    let grid = PartOptions { grid: 8, ..PartOptions::default() };
    let single =
        PartOptions { parts: vec![PartWanted { first: 0, units: 8, streams: 1 }], ..PartOptions::default() };
    let streams = PartOptions { overlap: 4, ..PartOptions::default() };
    for parts in [&grid, &single] {
        let refusal = limited(40).check(Some(parts)).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "parts of a device do not hold under an MPS percentage of 40: MPS overrules them; nearest: 100, or the \
             percentage without parts"
        );
        assert_eq!(limited(100).check(Some(parts)), Ok(()));
        assert_eq!(Enclosure::default().check(Some(parts)), Ok(()));
    }
    assert_eq!(limited(40).check(Some(&streams)), Ok(()));
    assert_eq!(limited(40).check(None), Ok(()));
}

#[test]
fn a_missing_library_is_told_by_name() {
    let missing = Nvml::at("libno-such-library.so.1").err().map(|error| error.to_string());
    let expected =
        "NVIDIA's management library (libno-such-library.so.1) was not found; it comes with the driver";
    assert_eq!(missing.as_deref(), Some(expected));
}

proptest! {
    /// The nearest sizes embrace what was wanted, none lies between, and what can be had exactly is both.
    #[test]
    fn nearest_sizes_embrace_what_was_wanted(wanted in 0u32..40, sizes in prop::collection::vec(0u32..40, 0..12)) {
        let (below, above) = beside(wanted, &sizes);
        for size in &sizes {
            prop_assert!(*size > wanted || below >= Some(*size));
            prop_assert!(*size < wanted || above.is_some_and(|above| above <= *size));
        }
        for found in [below, above].into_iter().flatten() {
            prop_assert!(sizes.contains(&found));
        }
        prop_assert!(below.is_none_or(|below| below <= wanted) && above.is_none_or(|above| above >= wanted));
        prop_assert_eq!(sizes.contains(&wanted), below == Some(wanted) && above == Some(wanted));
    }

    /// A percentage is taken as it is, or the nearest is named: never another silently.
    #[test]
    fn percentages_are_exact_or_refused(wanted in any::<u32>()) {
        match Percentage::new(wanted) {
            Ok(percentage) => prop_assert_eq!(percentage.value(), wanted),
            Err(MpsError::Percentage { wanted: told, nearest }) => {
                prop_assert_eq!(told, wanted);
                prop_assert_eq!(nearest.value(), wanted.clamp(1, 100));
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    /// A name is refused or found, whatever it is, and what is found has that name.
    #[test]
    fn any_text_is_a_name_or_refused(text in "[a-zA-Z0-9.+-]{0,40}|MIG-[0-9a-f-]{0,40}|.{0,20}") {
        if let Ok(name) = InstanceName::parse(&text) {
            let gpus = divided().0;
            if let Ok(found) = choose(&gpus, &name) {
                let named = match name {
                    InstanceName::Ordinal(ordinal) => found.ordinal == ordinal,
                    InstanceName::Uuid(uuid) => found.uuid == uuid,
                    InstanceName::Profile(profile) => found.profile == profile,
                };
                prop_assert!(named);
            }
        }
    }
}
