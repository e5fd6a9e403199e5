//! Networks over the parts of a GPU, from profiles that `raddle profile --spatial` wrote there.

use super::raddle;
use crate::bars::Bars;
use crate::host;
use anyhow::{Context as _, bail, ensure};
use plan::spatial::{Demand, EPSILON, Surface, fit, knee, optimum};
use serde_json::Value;
use std::path::{Path, PathBuf};
use vocab::{Profile, Span};

/// Promises that the best batch and part are told for, ms.
const PROMISES_MS: [u64; 3] = [25, 50, 100];

/// What is known of a network.
struct Network {
    name: String,
    surface: Surface,
}

/// Lines of the tables, as they grow.
#[derive(Default)]
struct Tables {
    points: Vec<String>,
    knees: Vec<String>,
    best: Vec<String>,
    /// Median errors of the execution-time model.
    errors: Vec<f64>,
}

/// Writes `gpu.csv`, `gpu-knees.csv`, `gpu-best.csv`, `gpu.svg` and `gpu_bars.txt` into `folder` from the profiles in
/// `profiles`; nothing here has a limit in an issue.
pub(super) fn run(folder: &Path, profiles: &Path) -> anyhow::Result<bool> {
    let found = read_all(profiles)?;
    let mut bars = Bars::default();
    let mut tables = Tables::default();
    let devices: Vec<&str> = found.iter().map(|profile| profile.device.as_str()).collect();
    ensure!(
        devices.windows(2).all(|pair| pair[0] == pair[1]),
        "the profiles are of several devices: {}; give those of one",
        devices.join(", ")
    );
    let mut networks = Vec::new();
    for profile in &found {
        let surface = Surface::of(profile)
            .with_context(|| format!("the profile of {} tells no surface", profile.model))?;
        networks.push(Network { name: profile.model.clone(), surface });
    }
    bars.note(&format!("{} networks on {}", networks.len(), devices.first().unwrap_or(&"?")));
    for network in &networks {
        tables.points(network);
        tables.knees(network, &mut bars);
        tables.best(network);
    }
    tables.errors.sort_by(f64::total_cmp);
    if let Some(median) = tables.errors.get(tables.errors.len().saturating_sub(1) / 2) {
        bars.note(&format!(
            "the execution-time model: median error of {} networks is {:.1} %",
            tables.errors.len(),
            median * 100.0
        ));
    }
    let Tables { points, knees, best, .. } = tables;
    host::csv(&folder.join("gpu.csv"), "model,units,rows,us", points.into_iter())?;
    host::csv(
        &folder.join("gpu-knees.csv"),
        "model,rows,efficient_units,sufficient_units,fitted_units,efficient_ms,sufficient_ms,whole_ms,fit_error_median,\
         fit_error_max",
        knees.into_iter(),
    )?;
    let header = "model,promise_ms,rows,units,share,latency_ms,rows_per_s,unfit";
    host::csv(&folder.join("gpu-best.csv"), header, best.into_iter())?;
    picture(&folder.join("gpu.svg"), &found)?;
    bars.finish_as(&folder.join("gpu_bars.txt"))
}

/// Every profile of a folder, by name: what `--output` wrote, or `--format json` printed.
fn read_all(folder: &Path) -> anyhow::Result<Vec<Profile>> {
    let list = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files: Vec<PathBuf> = list.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let mut profiles: Vec<Profile> = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file)?;
        let profile = parse(&text).with_context(|| format!("{} is no profile", file.display()))?;
        if profiles.iter().any(|known| known.model == profile.model) {
            bail!("{} is of {}, as a file before it", file.display(), profile.model);
        }
        profiles.push(profile);
    }
    if profiles.is_empty() {
        bail!("{} has no profile (NAME.json); write some with `raddle profile --spatial`", folder.display());
    }
    profiles.sort_by(|a, b| a.model.cmp(&b.model));
    Ok(profiles)
}

fn parse(text: &str) -> anyhow::Result<Profile> {
    let mut value: Value = serde_json::from_str(text)?;
    let inner = value.get_mut("profile").map(Value::take);
    let profile: Profile = serde_json::from_value(inner.unwrap_or(value))?;
    profile.check()?;
    Ok(profile)
}

impl Tables {
    fn points(&mut self, Network { name, surface }: &Network) {
        for point in surface.measured() {
            let us = point.time.as_secs_f64() * 1e6;
            self.points.push(format!("{name},{},{},{us:.1}", point.units, point.batch));
        }
    }

    fn knees(&mut self, Network { name, surface }: &Network, bars: &mut Bars) {
        let fitted = fit(surface.measured()).ok();
        let errors = fitted
            .as_ref()
            .map_or_else(|| ",".to_owned(), |fit| format!("{:.4},{:.4}", fit.error_median, fit.error_max));
        if let Some(fit) = &fitted {
            self.errors.push(fit.error_median);
            bars.note(&format!(
                "{name}: the execution-time model is off by {:.1} % (median), {:.1} % at most; {} points corrected",
                fit.error_median * 100.0,
                fit.error_max * 100.0,
                surface.corrections().len()
            ));
        }
        for batch in surface.batches() {
            let Some(own) = knee(surface, *batch, EPSILON) else { continue };
            let ms = |units: u32| {
                surface
                    .latency(units, *batch)
                    .map_or_else(String::new, |span| format!("{:.3}", span.as_ms_f64()))
            };
            let curve = fitted.as_ref().map(|fit| fit.model.curve(*batch, surface.whole()));
            let of_fit = curve.and_then(|curve| plan::spatial::efficient(&curve));
            let of_fit = of_fit.map_or_else(String::new, |units| units.to_string());
            self.knees.push(format!(
                "{name},{batch},{},{},{of_fit},{},{},{},{errors}",
                own.efficient,
                own.sufficient,
                ms(own.efficient),
                ms(own.sufficient),
                ms(surface.whole())
            ));
        }
    }

    fn best(&mut self, Network { name, surface }: &Network) {
        for promise in PROMISES_MS {
            let demand = Demand { slo: Span::from_ms(promise), rate: None };
            self.best.push(match optimum(surface, demand) {
                Ok(best) => {
                    let point = best.point;
                    format!(
                        "{name},{promise},{},{},{:.3},{:.3},{:.1},",
                        point.batch,
                        point.units,
                        f64::from(point.units) / f64::from(surface.whole().max(1)),
                        point.time.as_ms_f64(),
                        best.rows_per_s
                    )
                }
                Err(why) => format!("{name},{promise},,,,,,{}", why.to_string().replace(',', ";")),
            });
        }
    }
}

/// The curves, as `raddle plan knee` draws them.
fn picture(path: &Path, profiles: &[Profile]) -> anyhow::Result<()> {
    let folder = std::env::temp_dir().join(format!("raddle-knee-live-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut files = Vec::new();
    for profile in profiles {
        let file = folder.join(format!("{}.json", profile.model.replace('/', "-")));
        std::fs::write(&file, serde_json::to_string(profile)?)?;
        files.push(file.to_string_lossy().into_owned());
    }
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    raddle(&[&["plan", "knee"], files.as_slice(), &["--svg", &path.to_string_lossy()]].concat())?;
    Ok(std::fs::remove_dir_all(folder)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vocab::{BatchProfile, Bytes, SegmentProfile, ShareProfile, SpatialProfile};

    /// A network of 10 ms on 4 units and as much more on fewer as it has to share.
    fn profile() -> Profile {
        let batches = |us: u64| {
            let at =
                |batch: u32| BatchProfile { batch, segment_ns: vec![Span::from_us(us * u64::from(batch))] };
            vec![at(1), at(4)]
        };
        let segment =
            SegmentProfile { name: "s".into(), flops: 1, weight_bytes: Bytes(1), activation_bytes: Bytes(1) };
        let share = |units, us| ShareProfile { units, batches: batches(us) };
        Profile {
            model: "a".into(),
            device: "gpu".into(),
            segments: vec![segment],
            batches: batches(10_000),
            switch: None,
            spatial: Some(SpatialProfile {
                units: 4,
                shares: vec![share(1, 40_000), share(2, 20_000), share(3, 11_000)],
            }),
        }
    }

    #[test]
    fn tables_tell_points_knees_and_the_best() {
        let own = profile();
        let network = Network { name: own.model.clone(), surface: Surface::of(&own).unwrap() };
        let (mut tables, mut bars) = (Tables::default(), Bars::default());
        tables.points(&network);
        tables.knees(&network, &mut bars);
        tables.best(&network);
        assert_eq!(tables.points[0], "a,1,1,40000.0");
        assert_eq!(tables.points.len(), 8);
        assert!(tables.knees[0].starts_with("a,1,3,4,"), "{}", tables.knees[0]);
        assert!(tables.best[0].starts_with("a,25,1,3,0.750,11.000,"), "{}", tables.best[0]);
        assert!(tables.best[2].starts_with("a,100,1,3,"), "{}", tables.best[2]);
    }

    #[test]
    fn a_profile_is_read_bare_and_as_it_is_printed() {
        let own = profile();
        let bare = serde_json::to_string(&own).unwrap();
        assert_eq!(parse(&bare).unwrap(), own);
        assert_eq!(parse(&format!("{{\"schema_version\":1,\"profile\":{bare}}}")).unwrap(), own);
        assert!(parse("{}").is_err());
    }
}
