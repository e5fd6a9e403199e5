//! Packs what runs on a machine with a GPU: there is no Rust there, only the driver, CUDA 13, cuDNN 9 and Python.

use crate::{cargo, root, run, say, target};
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to do there, in the folder that holds the repository.
const COMMANDS: &str = r#"
On the machine with the GPU, in a copy of this folder, with CUDA's libraries in LD_LIBRARY_PATH:

  .gpu/gpu                                                       the conformance suite and the GPU's own tests
  .gpu/experiment cuda check OUT fp32,tf32,fp16,bf16 1,2,7,16 resnet50 bert_base …
  .gpu/experiment cuda audit tf32 1,7,16 resnet50 …              every convolution by itself and in its place
  compute-sanitizer --tool memcheck .gpu/experiment cuda audit tf32 2 tiny_cnn >> OUT/sanitizer.txt
  .gpu/experiment cuda latency OUT tf32,fp16 1,8 resnet50 bert_base …
  python3 experiments/pipeswitch/pytorch.py OUT/pytorch.csv tf32,fp16 1,8 resnet50 bert_base …
  .gpu/experiment cuda switch OUT tf32 resnet152 inception_v3 bert_base
  .gpu/experiment cuda preempt OUT tf32 resnet152 resnet50
  .gpu/experiment cuda cycles OUT tf32 resnet152 inception_v3
  .gpu/experiment cuda churn OUT tf32 resnet18 squeezenet1_0
  .gpu/experiment cuda several OUT tf32 resnet50 resnet152 bert_base      more on a machine with several GPUs
  python3 experiments/pipeswitch/serve.py .gpu/raddle OUT/serve.csv 460 resnet152 inception_v3 bert_base
  .gpu/experiment dstack live OUT [--policies dstack,triton]
  .gpu/experiment sgprs live OUT
  .gpu/experiment sgprs change OUT
  .gpu/raddle profile MODEL.onnx --spatial --device cuda:0 --gpu-grid 22 --gpu-fine --batches 1,4,16 -o OUT/MODEL.json
  .gpu/experiment knee live OUT

Copy OUT's tables into experiments/pipeswitch (those of dstack and sgprs into their folders); `cargo xtask bench pipeswitch` judges
them."#;

pub(crate) fn run_gpu() -> anyhow::Result<()> {
    run(cargo().args(["build", "--workspace", "--bins"]))?;
    run(cargo().args(["test", "--workspace", "--test", "gpu", "--no-run"]))?;
    let folder = root().join(".gpu");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let built = target().join("debug");
    for (from, to) in [
        (built.join("experiment"), "experiment"),
        (built.join("raddle"), "raddle"),
        (newest(&built.join("deps"), "gpu-")?, "gpu"),
    ] {
        run(Command::new("strip").arg("-o").arg(folder.join(to)).arg(from))?;
    }
    say(COMMANDS);
    Ok(())
}

/// The executable built last whose name begins so.
fn newest(folder: &Path, prefix: &str) -> anyhow::Result<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(prefix) && !name.contains('.') {
            found.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    let newest = found.into_iter().max();
    newest.map(|(_, path)| path).with_context(|| format!("no {prefix}* in {}", folder.display()))
}
