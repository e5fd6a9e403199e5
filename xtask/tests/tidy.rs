//! Rules of the tree that no compiler checks: layers, file heads, sizes, and what must not be in a commit.

#![expect(clippy::unwrap_used, reason = "a test that cannot read the tree has failed")]

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Layer of each crate. A crate may depend on crates of lower layers, and on those listed beside it.
const LAYERS: [(&str, u32, &[&str]); 11] = [
    ("vocab", 0, &[]),
    ("graph", 1, &[]),
    ("sched", 1, &[]),
    ("engine", 2, &[]),
    ("plan", 2, &[]),
    ("sim", 2, &[]),
    ("cuda", 3, &[]),
    ("server", 4, &[]),
    ("cli", 5, &[]),
    ("experiment", 5, &[]),
    ("xtask", 9, &[]),
];

/// What a layer may take from outside, where that is restricted.
const OUTSIDE: [(&str, &[&str]); 4] = [
    ("vocab", &["serde"]),
    ("sched", &["serde", "serde_json", "thiserror"]),
    ("plan", &["serde", "serde_json", "thiserror"]),
    ("sim", &["serde", "serde_json", "thiserror", "toml"]),
];

/// Longest source file, in lines.
const LINES_MAX: usize = 800;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn packages() -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let output = Command::new(cargo).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Names of a package's dependencies; those for tests only when `dev`.
fn dependencies(package: &Value, dev: bool) -> Vec<String> {
    let all = package["dependencies"].as_array().unwrap().iter();
    let wanted = all.filter(|dependency| (dependency["kind"] == "dev") == dev);
    wanted.map(|dependency| dependency["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn crates_depend_downwards_only() {
    let layers: BTreeMap<&str, (u32, &[&str])> =
        LAYERS.iter().map(|(name, layer, also)| (*name, (*layer, *also))).collect();
    let mut faults = Vec::new();
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        let Some((layer, also)) = layers.get(name) else {
            faults.push(format!("{name} is in no layer; add it to ARCHITECTURE.md and to this test"));
            continue;
        };
        for dependency in dependencies(&package, false) {
            match layers.get(dependency.as_str()) {
                Some((below, _)) if below >= layer && !also.contains(&dependency.as_str()) => {
                    faults.push(format!("{name} (layer {layer}) depends on {dependency} (layer {below})"));
                }
                _ => {}
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn pure_crates_stay_pure() {
    let ours: Vec<&str> = LAYERS.iter().map(|(name, _, _)| *name).collect();
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        let Some((_, allowed)) = OUTSIDE.iter().find(|(pure, _)| *pure == name) else { continue };
        for dependency in dependencies(&package, false) {
            let known = ours.contains(&dependency.as_str()) || allowed.contains(&dependency.as_str());
            assert!(known, "{name} must not depend on {dependency}");
        }
    }
}

#[test]
fn crates_have_no_features_and_no_build_script() {
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        assert_eq!(package["features"].as_object().unwrap().len(), 0, "{name} has cargo features");
        let targets = package["targets"].as_array().unwrap();
        let script = targets.iter().any(|target| target["kind"][0] == "custom-build");
        assert!(!script, "{name} has a build script");
        let manifest = std::fs::read_to_string(package["manifest_path"].as_str().unwrap()).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{name} does not take the workspace's lints");
    }
}

/// Files git tracks or would track, relative to the root.
fn files() -> Vec<PathBuf> {
    let arguments = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).unwrap();
    names.lines().map(PathBuf::from).filter(|path| root().join(path).is_file()).collect()
}

fn with_extension<'a>(files: &'a [PathBuf], extension: &'a str) -> impl Iterator<Item = &'a PathBuf> {
    files.iter().filter(move |path| path.extension().is_some_and(|found| found == extension))
}

#[test]
fn source_files_say_what_they_are_for_and_stay_readable() {
    let files = files();
    let mut faults = Vec::new();
    for path in with_extension(&files, "rs") {
        let text = std::fs::read_to_string(root().join(path)).unwrap();
        if !text.starts_with("//!") {
            faults.push(format!("{} does not open with //!", path.display()));
        }
        let lines = text.lines().count();
        if lines > LINES_MAX {
            faults.push(format!("{} has {lines} lines; split it by idea", path.display()));
        }
    }
    assert!(with_extension(&files, "rs").count() > 50, "the walk found the sources");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn nothing_is_tied_to_one_machine_or_left_unfinished() {
    // Spelled in two parts so that this file does not find itself.
    let banned = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("to", "do!("),
        concat!("unimple", "mented!("),
        concat!("#[ig", "nore"),
        concat!("FIX", "ME"),
    ];
    let mut faults = Vec::new();
    for path in files() {
        let Ok(text) = std::fs::read_to_string(root().join(&path)) else { continue };
        // Prose may name what code must not hold.
        if path.extension().is_some_and(|extension| extension == "md") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = banned.iter().find(|word| line.contains(**word)) {
                faults.push(format!("{}:{}: {word}", path.display(), number + 1));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn decisions_are_numbered_without_gaps() {
    let folder = root().join("docs/decisions");
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    for (place, name) in names.iter().enumerate() {
        assert!(name.starts_with(&format!("{:04}-", place + 1)), "{name} should be number {}", place + 1);
    }
}

#[test]
fn the_layer_table_is_the_one_in_the_architecture() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for (name, layer, _) in LAYERS.iter().filter(|(name, _, _)| *name != "xtask") {
        let row = format!("| {layer} | `{name}` |");
        assert!(text.contains(&row), "ARCHITECTURE.md has no row {row:?}");
    }
}
