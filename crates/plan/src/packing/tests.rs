//! Slots, sets of instances and deployments against brute force.

use super::slots::{Counts, FULL, arrange, gpus_needed, misplaced};
use super::*;
use expect_test::expect;
use proptest::prelude::*;

/// Whether instances fit one GPU, by trying every legal start of each.
fn fit_one(sizes: &[Size]) -> bool {
    fn place(sizes: &[Size], placed: &mut Vec<(Size, u8)>) -> bool {
        let Some((size, rest)) = sizes.split_first() else { return true };
        size.starts().iter().any(|start| {
            placed.push((*size, *start));
            let fits = misplaced(placed) == (vec![], false) && place(rest, placed);
            placed.pop();
            fits
        })
    }
    place(sizes, &mut Vec::new())
}

fn list(counts: &Counts) -> Vec<Size> {
    let of = |(size, count): (&Size, &u32)| vec![*size; *count as usize];
    Size::ALL.iter().zip(counts).rev().flat_map(of).collect()
}

/// The fewest GPUs, by putting each instance on every GPU so far or on another.
fn fewest(sizes: &[Size]) -> usize {
    fn place(sizes: &[Size], gpus: &mut Vec<Vec<Size>>, best: &mut usize) {
        if gpus.len() >= *best {
            return;
        }
        let Some((size, rest)) = sizes.split_first() else {
            *best = gpus.len();
            return;
        };
        for gpu in 0..=gpus.len() {
            if gpu == gpus.len() {
                gpus.push(Vec::new());
            }
            gpus[gpu].push(*size);
            if fit_one(&gpus[gpu]) {
                place(rest, gpus, best);
            }
            gpus[gpu].pop();
            if gpus[gpu].is_empty() {
                gpus.pop();
            }
        }
    }
    let mut best = sizes.len() + 1;
    place(sizes, &mut Vec::new(), &mut best);
    best
}

#[test]
fn full_gpus_are_those_to_which_nothing_can_be_added() {
    let mut full: Vec<Counts> = Vec::new();
    for code in 0..8u32 * 4 * 3 * 2 * 2 {
        let counts = [code % 8, code / 8 % 4, code / 32 % 3, code / 96 % 2, code / 192];
        let larger = (0..5).any(|place| {
            let mut more = counts;
            more[place] += 1;
            fit_one(&list(&more))
        });
        if fit_one(&list(&counts)) && !larger {
            full.push(counts);
        }
    }
    let mut known = FULL.to_vec();
    known.sort_unstable();
    full.sort_unstable();
    assert_eq!(full, known);
}

fn points(name: &str, per_s: &[(Size, f64)]) -> ModelTable {
    let point = |(size, each_per_s): &(Size, f64)| Measured {
        size: *size,
        batch: 1,
        processes: 1,
        each_per_s: *each_per_s,
        latency_s: 0.01,
    };
    ModelTable { name: name.into(), measured: per_s.iter().map(point).collect(), holes: Vec::new() }
}

fn tenant(model: &str, slo_ms: f64, rate: f64) -> Tenant {
    Tenant { model: model.into(), slo_ms, rate }
}

#[test]
fn whoever_cannot_be_served_is_named() {
    let tables = [points("a", &[(Size::One, 10.0), (Size::Seven, 40.0)]), points("b", &[(Size::Two, 5.0)])];
    let tenants = [
        tenant("a", 20.0, 5.0),
        tenant("a", 100.0, 5.0),
        tenant("b", 100.0, 1e9),
        tenant("c", 100.0, 5.0),
        tenant("b", 0.0, f64::NAN),
    ];
    let error = pack(&tables, &tenants, &Terms::default(), &|| false).unwrap_err();
    expect![[r#"
        a: fastest latency 10.0 ms (1 slices, batch 1, 1 processes) is not below 9.0 ms, what a batch may take of the SLO of 20 ms
        a is listed twice; add the rates up
        b: 1000000000 requests/s are above the 35000.0 that 2000 GPUs compute at most; use more GPUs
        c: nothing was measured of it; give its table
        b is listed twice; add the rates up"#]]
    .assert_eq(&error.to_string());
    let terms = Terms { gpus_max: 2, ..Terms::default() };
    let error = pack(&tables, &[tenant("a", 100.0, 100.0), tenant("b", 100.0, 25.0)], &terms, &|| false);
    expect!["2 tenants need at least 3 GPUs together, there are 2; use more GPUs or serve fewer"]
        .assert_eq(&error.unwrap_err().to_string());
}

#[test]
fn the_judge_names_every_fault() {
    let tables = [points("a", &[(Size::One, 10.0), (Size::Three, 30.0)])];
    let instance = |gpu, start, size, model: &str, batch, processes| Instance {
        gpu,
        start,
        size,
        model: model.into(),
        batch,
        processes,
    };
    let instances = vec![
        instance(0, 4, Size::Three, "a", 1, 1),
        instance(0, 6, Size::One, "a", 1, 1),
        instance(1, 0, Size::Four, "a", 1, 1),
        instance(1, 2, Size::Four, "b", 1, 6),
        instance(2, 0, Size::One, "a", 9, 6),
    ];
    let verdict =
        judge_packing(&tables, &[tenant("a", 20.0, 50.0)], &Terms::default(), &Deployment { instances });
    let faults: Vec<String> = verdict.faults.iter().map(ToString::to_string).collect();
    expect![[r#"
        GPU 0: an instance of 1 slices begins at slot 6, where it may not or another lies; the GPU holds these sizes in other slots
        GPU 1: an instance of 4 slices begins at slot 2, where it may not or another lies
        GPU 1: 8 slices are used, there are 7
        GPU 1: a was not measured on 4 slices with batch 1 and 1 processes
        GPU 1: b has no tenant
        GPU 2: 6 processes of a share an instance, 5 may
        GPU 2: a was not measured on 1 slices with batch 9 and 6 processes
        a: a batch takes 10.0 ms, 9.0 of the SLO may pass
        a: 40.0 of 50 requests/s are served"#]]
    .assert_eq(&faults.join("\n"));
}

#[test]
fn tables_with_faults_are_refused_line_by_line() {
    let text = "Mig instance,Batch size,Workload Number,Throughput,Latency\n1,1,1,10,0.1\n1,1,1,9,0.1\n5,1,1,9,0.1\n\
                2,1,1,0,0\n2,2,1,0,0.1\n2,x,1,3,0.1\n3,1,1\n";
    expect![[r#"
        m, line 3: this instance, batch and processes are listed twice
        m, line 4: no instance has 5 slices; sizes are 1, 2, 3, 4 and 7
        m, line 6: throughput or latency is no positive number
        m, line 7: "x" is no batch
        m, line 8: 3 columns, not slices, batch, processes, throughput, latency"#]]
    .assert_eq(&ModelTable::parse("m", text).unwrap_err().to_string());
    let models = ["a".to_owned(), "b".to_owned()];
    expect![[r#"
        promises, line 2: "-3" is no positive number
        there are 2 sets of promises and 1 of rates
        rates, set 1: 3 columns for 2 models
        set 1: b has a promise or a rate, not both"#]]
    .assert_eq(&demands("5,6\n-3,1\n", "1,N/A,4\n", &models).unwrap_err().to_string());
    let named = demands("b,a\n5,6\n", "b,a\n1,2\n", &models).unwrap();
    assert_eq!(named, [[tenant("b", 5.0, 1.0), tenant("a", 6.0, 2.0)]]);
}

/// Every number of instances of each size up to a few, whether or not it is wasteful.
fn brute(tables: &[ModelTable], rates: &[f64]) -> u32 {
    fn serve(tables: &[ModelTable], rates: &[f64], sum: Counts, best: &mut u32) {
        let Some((table, rest)) = tables.split_first() else {
            *best = (*best).min(gpus_needed(&sum));
            return;
        };
        if gpus_needed(&sum) >= *best {
            return;
        }
        fn add(table: &ModelTable, at: usize, rate: f64, sum: Counts, next: &mut dyn FnMut(Counts)) {
            if rate <= 0.0 {
                return next(sum);
            }
            let Some(point) = table.measured.get(at) else { return };
            let mut sum = sum;
            let mut rate = rate;
            loop {
                add(table, at + 1, rate, sum, next);
                if rate <= 0.0 {
                    return;
                }
                sum[point.size.place()] += 1;
                rate -= point.each_per_s;
            }
        }
        add(table, 0, rates[0], sum, &mut |sum| serve(rest, &rates[1..], sum, best));
    }
    let mut best = u32::MAX;
    serve(tables, rates, [0; 5], &mut best);
    best
}

proptest! {
    #[test]
    fn so_many_gpus_are_needed_and_arranged(
        counts in (0u32..6, 0u32..4, 0u32..4, 0u32..3, 0u32..2).prop_map(|(a, b, c, d, e)| [a, b, c, d, e]),
    ) {
        prop_assume!(counts.iter().sum::<u32>() <= 10);
        let needed = gpus_needed(&counts);
        prop_assert_eq!(needed as usize, fewest(&list(&counts)));
        let places = arrange(&counts);
        let mut gpus: Vec<Vec<(Size, u8)>> = vec![Vec::new(); needed as usize];
        for (at, size) in Size::ALL.into_iter().enumerate() {
            prop_assert_eq!(places[at].len(), counts[at] as usize);
            for (gpu, start) in &places[at] {
                gpus[*gpu as usize].push((size, *start));
            }
        }
        prop_assert!(gpus.iter().all(|gpu| !gpu.is_empty() && misplaced(gpu) == (vec![], false)));
    }

    #[test]
    fn no_deployment_uses_fewer_gpus(
        per_s in prop::collection::vec(prop::array::uniform5(1u32..40), 1..4),
        rates in prop::array::uniform3(1u32..120),
    ) {
        let tables: Vec<ModelTable> = per_s.iter().enumerate().map(|(number, per_s)| {
            let sizes: Vec<(Size, f64)> =
                Size::ALL.into_iter().zip(per_s.iter().map(|per_s| 20.0 + f64::from(*per_s))).collect();
            points(&format!("m{number}"), &sizes)
        }).collect();
        let rates: Vec<f64> = rates.iter().take(tables.len()).map(|rate| f64::from(*rate)).collect();
        let tenants: Vec<Tenant> =
            tables.iter().zip(&rates).map(|(table, rate)| tenant(&table.name, 100.0, *rate)).collect();
        let terms = Terms::default();
        let (deployment, report) = pack(&tables, &tenants, &terms, &|| false).unwrap();
        let verdict = judge_packing(&tables, &tenants, &terms, &deployment);
        prop_assert_eq!(&verdict.faults, &vec![]);
        prop_assert_eq!(verdict.gpus, report.gpus as usize);
        prop_assert!(report.proved && report.bound.gpus <= report.gpus);
        prop_assert_eq!(report.gpus, brute(&tables, &rates));
        prop_assert_eq!(Deployment::parse(&deployment.csv()).unwrap(), deployment);
    }
}
