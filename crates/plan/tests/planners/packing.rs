//! ParvaGPU's published deployments, from its published measurements.

use expect_test::expect;
use plan::packing::{
    Deployment, ModelTable, PackFault, Tenant, Terms, demands, judge_packing, pack, published,
};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/gpu-profiles/parvagpu")
}

fn text(path: &str) -> String {
    let file = root().join(path);
    std::fs::read_to_string(&file).unwrap_or_else(|error| {
        panic!(
            "{}: {error}; put the public GPU profiles beside the repository, in shared/data/gpu-profiles",
            file.display()
        )
    })
}

fn read() -> (Vec<ModelTable>, Vec<Vec<Tenant>>) {
    let mut names: Vec<String> = std::fs::read_dir(root().join("prof_data"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let table = |name: &String| ModelTable::parse(name, &text(&format!("prof_data/{name}.csv"))).unwrap();
    let tables = names.iter().map(table).collect();
    (tables, demands(&text("SLO/SLO_latency.csv"), &text("SLO/SLO_req_rate.csv"), &names).unwrap())
}

#[test]
fn the_published_deployments_come_out_line_for_line() {
    let (tables, sets) = read();
    let terms = Terms::default();
    let mut said = String::new();
    for (number, tenants) in (1..).zip(&sets) {
        let known = text(&format!("deployment/SLO{number}/SLO{number}_ParvaGPU_deploy.csv"));
        let deployment = published(&tables, tenants, &terms).unwrap();
        assert_eq!(deployment.csv(), known, "set {number}");
        assert_eq!(Deployment::parse(&known).unwrap(), deployment);
        let verdict = judge_packing(&tables, tenants, &terms, &deployment);
        let (slots, others): (Vec<_>, Vec<_>) =
            verdict.faults.iter().partition(|fault| matches!(fault, PackFault::Slot { fit: true, .. }));
        let _ = writeln!(
            said,
            "set {number}: {} GPUs, {} instances, {} slices; {} begin in slots of others, {} other faults",
            verdict.gpus,
            deployment.instances.len(),
            verdict.slices,
            slots.len(),
            others.len()
        );
    }
    expect![[r#"
        set 1: 2 GPUs, 6 instances, 10 slices; 0 begin in slots of others, 0 other faults
        set 2: 3 GPUs, 11 instances, 20 slices; 1 begin in slots of others, 0 other faults
        set 3: 5 GPUs, 18 instances, 33 slices; 4 begin in slots of others, 0 other faults
        set 4: 7 GPUs, 26 instances, 48 slices; 8 begin in slots of others, 0 other faults
        set 5: 13 GPUs, 53 instances, 90 slices; 15 begin in slots of others, 0 other faults
        set 6: 16 GPUs, 62 instances, 112 slices; 13 begin in slots of others, 0 other faults
    "#]]
    .assert_eq(&said);
}

#[test]
fn no_more_gpus_are_used_and_what_is_least_is_proved() {
    let (tables, sets) = read();
    let terms = Terms::default();
    let mut said = String::new();
    for (number, tenants) in (1..).zip(&sets) {
        let (deployment, report) = pack(&tables, tenants, &terms, &|| false).unwrap();
        assert_eq!(judge_packing(&tables, tenants, &terms, &deployment).faults, []);
        assert_eq!(deployment.gpus(), report.gpus as usize);
        let _ = writeln!(
            said,
            "set {number}: {} GPUs, {} slices; at least {:.1} slices, {} GPUs, by prices {:.3}; {} {}",
            report.gpus,
            deployment.slices(),
            report.bound.fractional_slices,
            report.bound.fractional_gpus,
            report.bound.priced,
            if report.proved { "proved" } else { "not proved, at least" },
            report.lower
        );
    }
    expect![[r#"
        set 1: 2 GPUs, 10 slices; at least 5.6 slices, 1 GPUs, by prices 1.429; proved 2
        set 2: 3 GPUs, 20 slices; at least 11.4 slices, 2 GPUs, by prices 2.857; proved 3
        set 3: 5 GPUs, 30 slices; at least 24.0 slices, 4 GPUs, by prices 4.286; proved 5
        set 4: 7 GPUs, 44 slices; at least 36.0 slices, 6 GPUs, by prices 6.286; proved 7
        set 5: 12 GPUs, 82 slices; at least 75.3 slices, 11 GPUs, by prices 11.733; proved 12
        set 6: 15 GPUs, 105 slices; at least 98.4 slices, 15 GPUs, by prices 14.955; proved 15
    "#]]
    .assert_eq(&said);
}
