//! Every network written, checked by the ONNX checker, run by onnxruntime and by tract from our graph, and compared.
//!
//! Files are large and are removed once compared. The networks of full size are slow; the tiny ones stand for them where
//! time is short (`tiny_` selects those).

use anyhow::{Context, Result, ensure};
use graph::zoo::{self, ZooOptions};
use graph::{ImportLimits, Model, Sizes, wire_graph};
use std::path::{Path, PathBuf};
use std::process::Command;
use tract_onnx::prelude::{IntoRunnable, IntoTValue, TValue, TVec, Tensor};

/// The largest norm of a difference, relative to the norm of what onnxruntime says.
const TOLERANCE: f64 = 1e-4;

/// Rows that the Python script feeds.
const ROWS: usize = 2;

macro_rules! compared {
    ($($name:ident)*) => {
        const COMPARED: &[&str] = &[$(stringify!($name)),*];
        $(#[test] fn $name() -> Result<()> { check(stringify!($name), &ZooOptions::default()) })*
    };
}

compared! {
    alexnet vgg16 vgg19 resnet18 resnet50 resnet101 resnet152 resnext50 inception_v3 densenet121 mobilenet_v2
    squeezenet1_0 bert_base gpt2 vit_b_16 tiny_cnn tiny_mlp tiny_transformer
}

#[test]
fn every_network_is_compared() {
    assert_eq!(COMPARED, zoo::names());
}

#[test]
fn tiny_transformer_on_longer_rows() -> Result<()> {
    check("tiny_transformer", &ZooOptions { seed: 3, sequence: Some(32) })
}

/// A tensor that onnxruntime read or wrote.
struct Recorded {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

fn check(name: &str, options: &ZooOptions) -> Result<()> {
    let case = format!("zoo_{name}_{}_{}", options.seed, options.sequence.unwrap_or(0));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(case);
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{name}.onnx"));
    zoo::write(name, &path, options)?;
    let (inputs, outputs) = run_onnxruntime(&path)?;
    let found = run_tract(name, &path, &inputs)?;
    std::fs::remove_dir_all(&folder)?;
    ensure!(found.len() == outputs.len(), "{} outputs, not {}", found.len(), outputs.len());
    for (found, expected) in found.iter().zip(&outputs) {
        compare(found, expected).with_context(|| format!("{name}: output {}", expected.name))?;
    }
    Ok(())
}

fn compare(found: &Tensor, expected: &Recorded) -> Result<()> {
    ensure!(found.shape() == expected.shape, "shape {:?}, not {:?}", found.shape(), expected.shape);
    let name = &expected.name;
    let expected = expected.floats();
    let found = found.to_plain_array_view::<f32>()?;
    let found = found.as_slice().context("tract's outputs are dense")?;
    let error = distance(found, &expected);
    ensure!(error < TOLERANCE, "relative error {error:e}");
    let mean = expected.iter().copied().map(f64::from).sum::<f64>() / expected.len() as f64;
    let variance =
        expected.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / expected.len() as f64;
    let deviation = variance.sqrt();
    ensure!((0.01..100.0).contains(&deviation), "the signal faded or grew: deviation {deviation}");
    let (first, second) = expected.split_at(expected.len() / ROWS);
    let response = distance(second, first);
    println!("{name}: relative error {error:.1e}, deviation {deviation:.2}, rows differ by {response:.3}");
    ensure!(response > 100.0 * TOLERANCE, "both rows give nearly the same: relative difference {response:e}");
    Ok(())
}

/// The norm of the difference relative to the norm of `expected`.
fn distance(found: &[f32], expected: &[f32]) -> f64 {
    let difference = found.iter().zip(expected).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2));
    let norm = expected.iter().map(|b| f64::from(*b).powi(2)).sum::<f64>();
    (difference.sum::<f64>() / norm).sqrt()
}

fn run_tract(name: &str, path: &Path, inputs: &[Recorded]) -> Result<TVec<TValue>> {
    let model = Model::import(name, path, &ImportLimits::default())?;
    let graph = model.at(&Sizes::batch(ROWS))?;
    drop(model);
    let runnable = wire_graph(&graph)?.into_optimized()?.into_runnable()?;
    drop(graph);
    let inputs = inputs.iter().map(|input| input.tensor().map(IntoTValue::into_tvalue));
    runnable.run(inputs.collect::<Result<_>>()?)
}

fn run_onnxruntime(path: &Path) -> Result<(Vec<Recorded>, Vec<Recorded>)> {
    let folder = path.parent().context("a model lies in a folder")?;
    let status = Command::new(python()?).arg(script()).arg(folder).status()?;
    ensure!(status.success(), "zoo_check.py refused {}; its message is above", path.display());
    let manifest = std::fs::read_to_string(path.with_extension("txt"))?;
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for line in manifest.lines() {
        let [kind, name, dtype, shape] = line.split(' ').collect::<Vec<_>>()[..] else {
            anyhow::bail!("zoo_check.py wrote the line {line:?}");
        };
        let recorded = Recorded {
            name: name.into(),
            dtype: dtype.into(),
            shape: shape.split('x').map(str::parse).collect::<Result<_, _>>()?,
            bytes: std::fs::read(path.with_extension(format!("{name}.bin")))?,
        };
        if kind == "input" { inputs.push(recorded) } else { outputs.push(recorded) }
    }
    Ok((inputs, outputs))
}

fn script() -> PathBuf {
    workspace().join("tests/python/zoo_check.py")
}

fn python() -> Result<PathBuf> {
    let python = std::env::var_os("RADDLE_PYTHON")
        .map_or_else(|| workspace().join(".cache/python/bin/python"), PathBuf::from);
    ensure!(python.exists(), "no Python at {}; run `cargo xtask python`", python.display());
    Ok(python)
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("a crate lies two folders below the workspace")
}

impl Recorded {
    fn floats(&self) -> Vec<f32> {
        self.bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    fn numbers(&self) -> Vec<i64> {
        let number = |b: &[u8]| i64::from_le_bytes(b.try_into().expect("chunks of eight bytes"));
        self.bytes.chunks_exact(8).map(number).collect()
    }

    fn tensor(&self) -> Result<Tensor> {
        match self.dtype.as_str() {
            "float32" => Tensor::from_shape(&self.shape, &self.floats()),
            "int64" => Tensor::from_shape(&self.shape, &self.numbers()),
            other => anyhow::bail!("zoo_check.py wrote a {other} tensor"),
        }
    }
}
