//! Every generated kernel compiles for sm_90, and a machine without a GPU is told so: no GPU is needed here.

use cuda::{CudaDevice, CudaError, CudaOptions, Precision, check_kernels, check_own_kernels};
use graph::zoo::{self, ZooOptions};
use graph::{ImportLimits, Model, Sizes};
use std::path::{Path, PathBuf};
use std::process::Command;

/// One network of each kind of kernel: windows, joins, clipped activations, rows, attention.
const MODELS: [&str; 5] = ["squeezenet1_0", "mobilenet_v2", "densenet121", "bert_base", "tiny_transformer"];

/// NVRTC as PyPI packages it, in the environment of the tests.
fn library_folder() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = std::env::var_os("RADDLE_PYTHON")
        .map_or_else(|| workspace.join(".cache/python/bin/python"), PathBuf::from);
    let script = "import nvidia, os; print(os.path.join(list(nvidia.__path__)[0], 'cu13', 'lib'))";
    let output = Command::new(&python).args(["-c", script]).output();
    let found = output.ok().filter(|output| output.status.success());
    let found =
        found.unwrap_or_else(|| panic!("{} has no NVRTC; run `cargo xtask python`", python.display()));
    PathBuf::from(String::from_utf8_lossy(&found.stdout).trim())
}

/// Libraries are looked for where the process was told at its start, so the test starts itself again.
#[test]
fn every_kernel_compiles_without_a_gpu() {
    if std::env::var_os("RADDLE_NVRTC").is_none() {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "every_kernel_compiles_without_a_gpu", "--nocapture"])
            .env("RADDLE_NVRTC", "here")
            .env("LD_LIBRARY_PATH", library_folder())
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    check_own_kernels("sm_90").unwrap();
    for name in MODELS {
        let file = zoo::build(name, &ZooOptions::default()).unwrap();
        let model = Model::from_bytes(name, zoo::encode(&file), &ImportLimits::default()).unwrap();
        let graph = model.at(&Sizes::batch(2)).unwrap();
        for precision in [Precision::Fp32, Precision::Tf32, Precision::Fp16, Precision::Bf16] {
            let kernels = check_kernels(&graph, precision, "sm_90");
            assert!(kernels.as_ref().is_ok_and(|count| *count > 0), "{name} {precision:?}: {kernels:?}");
        }
    }
}

#[test]
fn a_machine_without_a_gpu_is_told_so() {
    if cuda::devices() == 0 {
        let error = CudaDevice::open(0, &CudaOptions::default()).map(|_| ()).unwrap_err();
        assert!(matches!(error, CudaError::NoDriver | CudaError::NoDevice { .. }), "{error}");
    }
}
