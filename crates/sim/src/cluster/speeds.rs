//! The driver's answer to a question for the largest sum of speeds: CPUs and memory beside GPUs that are given, as on one
//! server with all there is (the first of the two programs of Synergy's OPT, OSDI'22).
//!
//! The unknowns are the parts of each job at each point of its profile, relaxed to anything from none to all; jobs that
//! differ in nothing share theirs, and are then dealt to the points in whole. Where the rounding asks for more than there
//! is, the policy that asked gives way as its rules say.

use super::lp::Program;
use super::profiles::Point;
use super::{Setup, TraceJob};
use sched::cluster::{ClusterWorld, JobId, NodeSpec, Real};
use std::collections::BTreeMap;

/// Jobs that differ in nothing.
#[derive(Clone, Debug)]
struct Alike {
    /// Their places in the question.
    jobs: Vec<usize>,
    /// GPUs of each.
    gpus: f64,
    /// What each could have on a GPU.
    points: Vec<Point>,
}

/// All there is, and a GPU's even part of it: CPUs in thousandths and bytes.
#[derive(Clone, Copy, Debug)]
struct Supply {
    cpu_milli: f64,
    memory: f64,
    even: (u64, u64),
}

/// CPUs in thousandths and bytes of memory over all GPUs of each of `jobs` that make the sum of speeds largest on the
/// nodes of `world`.
pub(super) fn fastest(
    setup: &Setup,
    world: &ClusterWorld,
    jobs: Vec<(JobId, &TraceJob)>,
) -> Vec<(JobId, Vec<Real>)> {
    let part = |of: u64, node: &NodeSpec| of / u64::from(node.gpus.max(1));
    let supply = Supply {
        cpu_milli: world.nodes().map(|node| node.cpu_milli as f64).sum(),
        memory: world.nodes().map(|node| node.memory.0 as f64).sum(),
        even: (
            world.nodes().map(|node| part(node.cpu_milli, node)).min().unwrap_or(0),
            world.nodes().map(|node| part(node.memory.0, node)).min().unwrap_or(0),
        ),
    };
    let mut groups: BTreeMap<(&str, u32, u64, u64), Alike> = BTreeMap::new();
    for (at, (_, job)) in jobs.iter().enumerate() {
        let key = (job.model.as_str(), job.gpus, job.cpu_milli, job.memory.0);
        let group = || {
            let gpus = f64::from(job.gpus);
            Alike { jobs: Vec::new(), gpus, points: points(setup, job, supply.even) }
        };
        groups.entry(key).or_insert_with(group).jobs.push(at);
    }
    let groups: Vec<Alike> = groups.into_values().collect();
    let chosen = split(&groups, jobs.len(), supply);
    let share = |((id, job), point): ((JobId, &TraceJob), Point)| {
        let all = |each: u64| Real::of(each as f64 * f64::from(job.gpus));
        (id, vec![all(point.cpu_milli), all(point.memory)])
    };
    jobs.into_iter().zip(chosen).map(share).collect()
}

/// What a job could have on each GPU: its profile's points, else an even part or all it asks for.
fn points(setup: &Setup, job: &TraceJob, even: (u64, u64)) -> Vec<Point> {
    let profiled = setup.profiles.as_ref().and_then(|profiles| profiles.points(&job.model));
    profiled.map_or_else(
        || {
            let gpus = u64::from(job.gpus.max(1));
            let (cpu_milli, memory) = (job.cpu_milli / gpus, job.memory.0 / gpus);
            let speed_milli = u32::try_from(job.speedup_micro / 1_000).unwrap_or(u32::MAX);
            let modest =
                Point { cpu_milli: cpu_milli.min(even.0), memory: memory.min(even.1), speed_milli: 1_000 };
            vec![modest, Point { cpu_milli, memory, speed_milli }]
        },
        <[Point]>::to_vec,
    )
}

/// The point of each job in the order of the question, which has `count` jobs: the fastest that fit together.
fn split(groups: &[Alike], count: usize, supply: Supply) -> Vec<Point> {
    let mut chosen = vec![Point::default(); count];
    let (mut cpu, mut memory) = (supply.cpu_milli, supply.memory);
    let mut open = Vec::new();
    let groups: Vec<Alike> = groups.iter().map(|group| safe(group, supply.even)).collect();
    for group in &groups {
        let even =
            group.points.iter().filter(|point| point.within(supply.even)).max_by_key(|point| point.key());
        let best = group.points.iter().max_by_key(|point| point.key());
        let (Some(best), even) = (best, even.copied().unwrap_or_default()) else { continue };
        group.jobs.iter().for_each(|job| chosen[*job] = even);
        if best.speed_milli > even.speed_milli {
            open.push((group, even));
        } else {
            let all = group.gpus * group.jobs.len() as f64;
            cpu -= all * even.cpu_milli as f64;
            memory -= all * even.memory as f64;
        }
    }
    let Some(parts) = solve(&open, cpu, memory) else { return chosen };
    for ((group, _), parts) in open.iter().zip(parts) {
        deal(group, &parts, &mut chosen);
    }
    give_way(&open, (cpu, memory), &mut chosen);
    chosen
}

/// A group without points that would leave a job slower than its even part, now or when what it has beyond that part is taken
/// back: a group's parts keep to it on average, but each job is to.
fn safe(group: &Alike, even: (u64, u64)) -> Alike {
    let speed = |share: (u64, u64)| {
        let within = group.points.iter().filter(|point| point.within(share));
        within.map(|point| point.speed_milli).max().unwrap_or(0)
    };
    let least = speed(even);
    let kept = |point: &&Point| speed((point.cpu_milli.min(even.0), point.memory.min(even.1))) >= least;
    Alike {
        jobs: group.jobs.clone(),
        gpus: group.gpus,
        points: group.points.iter().filter(kept).copied().collect(),
    }
}

/// Moves jobs to lesser points, those first that lose least for what they give back, until what rounding gave too much of is
/// back.
fn give_way(open: &[(&Alike, Point)], (cpu, memory): (f64, f64), chosen: &mut [Point]) {
    let jobs =
        || open.iter().flat_map(|(group, even)| group.jobs.iter().map(move |job| (*job, *group, *even)));
    let steps: usize = open.iter().map(|(group, _)| group.jobs.len() * group.points.len()).sum();
    // Each step takes a job to a point that needs less.
    for _ in 0..steps {
        let used = jobs().fold((0.0, 0.0), |(cpu, memory), (job, group, _)| {
            let Point { cpu_milli, memory: bytes, .. } = chosen[job];
            (cpu + group.gpus * cpu_milli as f64, memory + group.gpus * bytes as f64)
        });
        let over = (used.0 > cpu, used.1 > memory);
        if !over.0 && !over.1 {
            return;
        }
        let mut best: Option<(f64, usize, Point)> = None;
        for (job, group, even) in jobs() {
            let now = chosen[job];
            for point in group.points.iter().filter(|point| point.speed_milli >= even.speed_milli) {
                let part = |all: bool, before: u64, after: u64, of: f64| {
                    if all { (before as f64 - after as f64) / of.max(1.0) } else { 0.0 }
                };
                let back = part(over.0, now.cpu_milli, point.cpu_milli, cpu)
                    + part(over.1, now.memory, point.memory, memory);
                if !point.within((now.cpu_milli, now.memory)) || back <= 0.0 {
                    continue;
                }
                let lost = f64::from(now.speed_milli - point.speed_milli.min(now.speed_milli));
                let price = lost / (back * group.gpus);
                if best.is_none_or(|(least, ..)| price < least) {
                    best = Some((price, job, *point));
                }
            }
        }
        let Some((_, job, point)) = best else { return };
        chosen[job] = point;
    }
}

/// The part of each group's jobs at each of its points; the rest of them stays at the even one.
fn solve(open: &[(&Alike, Point)], cpu: f64, memory: f64) -> Option<Vec<Vec<f64>>> {
    let times = |group: &Alike| group.jobs.len() as f64;
    let columns = open.iter().flat_map(|(group, _)| group.points.iter().map(move |_| times(group))).collect();
    let gain =
        |point: &Point, even: &Point| (f64::from(even.speed_milli) - f64::from(point.speed_milli)) / 1e3;
    let cost = open.iter().flat_map(|(group, even)| group.points.iter().map(move |point| gain(point, even)));
    let mut program = Program::merged(cost.collect(), columns);
    let (mut cpus, mut bytes, mut at) = (Vec::new(), Vec::new(), 0);
    let (mut cpu_left, mut memory_left) = (cpu, memory);
    for (group, even) in open {
        let own = at..at + group.points.len();
        let more = |here: u64, even: u64, all: f64| group.gpus * (here as f64 - even as f64) / all.max(1.0);
        for (column, point) in own.clone().zip(&group.points) {
            program.row(times(group), [(column, -1.0)], 0.0);
            cpus.push((column, more(point.cpu_milli, even.cpu_milli, cpu)));
            bytes.push((column, more(point.memory, even.memory, memory)));
        }
        cpu_left -= group.gpus * times(group) * even.cpu_milli as f64;
        memory_left -= group.gpus * times(group) * even.memory as f64;
        program.row(times(group), own.clone().map(|column| (column, 1.0)), 1.0);
        at = own.end;
    }
    program.row(1.0, cpus, (cpu_left / cpu.max(1.0)).max(0.0));
    program.row(1.0, bytes, (memory_left / memory.max(1.0)).max(0.0));
    let x = program.solve()?.x;
    let mut rest = x.into_iter();
    Some(open.iter().map(|(group, _)| rest.by_ref().take(group.points.len()).collect()).collect())
}

/// Gives each job of a group one point: each point its whole part, then those with the largest rests.
fn deal(group: &Alike, parts: &[f64], chosen: &mut [Point]) {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the group's jobs")]
    let split = |part: &f64| {
        let all = (part.clamp(0.0, 1.0) * group.jobs.len() as f64 * 1e6).round() as u64;
        (all / 1_000_000, all % 1_000_000)
    };
    let mut jobs = group.jobs.iter();
    let mut rests = Vec::with_capacity(parts.len());
    for (point, (whole, rest)) in group.points.iter().zip(parts.iter().map(split)) {
        for job in jobs.by_ref().take(usize::try_from(whole).unwrap_or(0)) {
            chosen[*job] = *point;
        }
        rests.push((rest, *point));
    }
    rests.sort_by_key(|(rest, point)| (std::cmp::Reverse(*rest), std::cmp::Reverse(point.key())));
    for (job, (_, point)) in jobs.zip(rests.iter().filter(|(rest, _)| *rest > 0)) {
        chosen[*job] = *point;
    }
}

#[cfg(test)]
mod tests {
    use super::{Alike, Point, Supply, split};
    use vocab::Rng;

    /// Against every choice of points for a few jobs: no whole choice that fits is better than the program by more than one
    /// job's rounding, and no job falls below its even part.
    #[test]
    fn no_choice_of_points_is_much_faster() {
        let mut rng = Rng::new(11);
        let small = |rng: &mut Rng, most: u64| 1 + rng.below(most);
        for _ in 0..200 {
            let mut groups = Vec::new();
            for job in 0..4 {
                // More of both is faster.
                let (mut points, mut speed) = (Vec::new(), 0);
                let (mut cpu_milli, mut memory) = (0, 0);
                for _ in 0..3 {
                    cpu_milli += small(&mut rng, 2_000);
                    memory += small(&mut rng, 40);
                    speed += u32::try_from(small(&mut rng, 1_000)).unwrap();
                    points.push(Point { cpu_milli, memory, speed_milli: speed });
                }
                // The even part is always among what can be had.
                points.push(Point { cpu_milli: 2_000, memory: 40, speed_milli: points[0].speed_milli });
                groups.push(Alike { jobs: vec![job], gpus: 1.0, points });
            }
            let supply = Supply { cpu_milli: 8_000.0, memory: 160.0, even: (2_000, 40) };
            let chosen = split(&groups, 4, supply);
            let mut best = 0;
            for choice in 0..256usize {
                let points: Vec<Point> =
                    (0..4).map(|job| groups[job].points[choice >> (2 * job) & 3]).collect();
                let (cpu, memory) = points.iter().fold((0, 0), |(c, m), p| (c + p.cpu_milli, m + p.memory));
                if cpu <= 8_000 && memory <= 160 {
                    best = best.max(points.iter().map(|point| point.speed_milli).sum());
                }
            }
            let used = chosen.iter().fold((0, 0), |(c, m), p| (c + p.cpu_milli, m + p.memory));
            assert!(used.0 <= 8_000 && used.1 <= 160, "{used:?} is more than there is");
            let most: u32 = groups.iter().flat_map(|g| &g.points).map(|p| p.speed_milli).max().unwrap();
            let ours: u32 = chosen.iter().map(|point| point.speed_milli).sum();
            assert!(ours + 2 * most >= best, "{ours} is far below {best}");
        }
    }
}
