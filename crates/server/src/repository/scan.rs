//! Walks a repository: every model version that could be served, and every reason why another could not.

use super::config::{ModelConfig, VersionPolicy};
use super::read::{ConfigError, Fault, parse_config};
use crate::kserve::Labels;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest `config.pbtxt` read.
const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Largest file of class names read.
const LABELS_BYTES_MAX: u64 = 16 << 20;
/// Longest class name kept, in bytes.
const LABEL_BYTES_MAX: usize = 1024;
/// Longest name of a model or file.
const NAME_MAX: usize = 255;
/// The model's file in a version folder.
const MODEL_FILE: &str = "model.onnx";

/// A repository as it was found.
#[derive(Clone, Debug, Default)]
pub struct Repository {
    /// Model versions to load, by name then version.
    pub entries: Vec<ModelEntry>,
    /// What keeps a model from loading.
    pub problems: Vec<Problem>,
    /// What is said and has no effect.
    pub warnings: Vec<Problem>,
}

/// One version of one model.
#[derive(Clone, Debug)]
pub struct ModelEntry {
    /// The model's name.
    pub name: String,
    /// Its version, at least 1.
    pub version: u64,
    /// The ONNX file, links resolved, inside the repository.
    pub path: PathBuf,
    /// What is configured, shared by the model's versions.
    pub config: Arc<ModelConfig>,
    /// Class names of its outputs, shared by the model's versions.
    pub labels: Arc<Labels>,
}

/// Something wrong with a file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The model it concerns, where the name is valid.
    pub model: Option<String>,
    /// The file or folder, relative to the repository.
    pub path: PathBuf,
    /// What is wrong, with the remedy.
    pub why: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)
    }
}

/// Why there is no repository at all.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The folder cannot be read.
    #[error("cannot read model repository {path:?}; name a folder that holds models")]
    Unreadable {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Reads the repository in `root`.
///
/// # Errors
/// Only when `root` itself cannot be read; everything else is a [`Problem`] beside the models that work.
pub fn scan(root: &Path) -> Result<Repository, ScanError> {
    let unreadable = |source| ScanError::Unreadable { path: root.to_owned(), source };
    let real = root.canonicalize().map_err(unreadable)?;
    let names = list(&real).map_err(unreadable)?;
    let mut scan = Scan { root: &real, found: Repository::default() };
    for name in names {
        scan.top(&name);
    }
    let mut found = scan.found;
    found.entries.sort_by(|left, right| (&left.name, left.version).cmp(&(&right.name, right.version)));
    let twice: Vec<String> = found
        .entries
        .windows(2)
        .filter(|pair| (&pair[0].name, pair[0].version) == (&pair[1].name, pair[1].version))
        .map(|pair| pair[0].name.clone())
        .collect();
    for name in twice {
        found.entries.retain(|entry| entry.name != name);
        let why = "the model is there twice, as a file and as a folder or version 1; keep one".to_owned();
        found.problems.push(Problem { model: Some(name.clone()), path: name.into(), why });
    }
    Ok(found)
}

/// Whether `name` may name a model or a file of one: `[A-Za-z0-9._-]`, up to 255 of them, no leading dot.
pub(super) fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !name.is_empty() && name.len() <= NAME_MAX && !name.starts_with('.') && name.bytes().all(allowed)
}

struct Scan<'a> {
    root: &'a Path,
    found: Repository,
}

impl Scan<'_> {
    /// One entry of the repository's folder.
    fn top(&mut self, file_name: &str) {
        if file_name.starts_with('.') {
            return;
        }
        let relative = PathBuf::from(file_name);
        let bare = file_name.strip_suffix(".onnx");
        let name = bare.unwrap_or(file_name);
        let path = match self.inside(&relative) {
            Ok(path) => path,
            Err(why) => return self.problem(None, relative, why),
        };
        let is_folder = path.is_dir();
        if !is_folder && bare.is_none() {
            return;
        }
        if !is_name(name) {
            let why = "a model's name has letters, digits, '.', '_' and '-' only, at most 255; rename it"
                .to_owned();
            return self.problem(None, relative, why);
        }
        if name == "stats" {
            let why = "no model can be called stats: /v2/models/stats is the statistics of all; rename it"
                .to_owned();
            return self.problem(Some(name), relative, why);
        }
        if !is_folder {
            let (config, labels) = (Arc::new(ModelConfig::bare(name)), Arc::default());
            return self.found.entries.push(ModelEntry {
                name: name.to_owned(),
                version: 1,
                path,
                config,
                labels,
            });
        }
        if bare.is_some() {
            return self.problem(None, relative, "this is a folder with a file's name; rename it".into());
        }
        if let Err((path, why)) = self.model(name) {
            self.problem(Some(name), path, why);
        }
    }

    /// One model's folder.
    fn model(&mut self, name: &str) -> Result<(), (PathBuf, String)> {
        let folder = PathBuf::from(name);
        let Some(config) = self.config(name, &folder) else { return Ok(()) };
        let config = Arc::new(config);
        let labels = Arc::new(self.labels(&config, &folder)?);
        let told = self.found.problems.len();
        let mut versions = self.versions(name, &folder, &config)?;
        if versions.is_empty() && self.found.problems.len() > told {
            return Ok(());
        }
        if versions.is_empty() {
            let why =
                format!("there is no {MODEL_FILE} and no version folder (such as 1/{MODEL_FILE}); add one");
            return Err((folder, why));
        }
        choose(&config.version_policy, &mut versions).map_err(|why| (folder, why))?;
        for (version, path) in versions {
            let (config, labels) = (Arc::clone(&config), Arc::clone(&labels));
            self.found.entries.push(ModelEntry { name: name.to_owned(), version, path, config, labels });
        }
        Ok(())
    }

    /// The folder's configuration; `None` when it has one that cannot be used, which is then reported.
    fn config(&mut self, name: &str, folder: &Path) -> Option<ModelConfig> {
        let relative = folder.join("config.pbtxt");
        if !self.root.join(&relative).is_symlink() && !self.root.join(&relative).exists() {
            return Some(ModelConfig::bare(name));
        }
        let faults = match self.text(&relative, CONFIG_BYTES_MAX).map(|text| parse_config(&text, name)) {
            Ok(Ok((config, warnings))) => {
                for warning in warnings {
                    let (model, path) = (Some(name.to_owned()), relative.clone());
                    self.found.warnings.push(Problem { model, path, why: warning.to_string() });
                }
                return Some(config);
            }
            Ok(Err(ConfigError::Faults { faults })) => faults.iter().map(Fault::to_string).collect(),
            Ok(Err(ConfigError::Syntax(error))) => vec![error.to_string()],
            Err(why) => vec![why],
        };
        for why in faults {
            self.problem(Some(name), relative.clone(), why);
        }
        None
    }

    fn labels(&self, config: &ModelConfig, folder: &Path) -> Result<Labels, (PathBuf, String)> {
        let mut labels = BTreeMap::new();
        for output in &config.outputs {
            let Some(file) = &output.label_filename else { continue };
            let relative = folder.join(file);
            let text = self.text(&relative, LABELS_BYTES_MAX).map_err(|why| (relative.clone(), why))?;
            let names: Vec<String> = text.lines().map(|line| line.trim_end().to_owned()).collect();
            if names.iter().any(|name| name.len() > LABEL_BYTES_MAX) {
                return Err((
                    relative,
                    format!("a class name is longer than {LABEL_BYTES_MAX} bytes; shorten it"),
                ));
            }
            labels.insert(output.name.clone(), names);
        }
        Ok(Labels(labels))
    }

    /// The folder's versions and their files.
    fn versions(
        &mut self,
        name: &str,
        folder: &Path,
        config: &ModelConfig,
    ) -> Result<BTreeMap<u64, PathBuf>, (PathBuf, String)> {
        let file = config.model_filename.as_deref().unwrap_or(MODEL_FILE);
        let entries =
            list(&self.root.join(folder)).map_err(|error| (folder.to_owned(), error.to_string()))?;
        let mut versions = BTreeMap::new();
        for entry in entries {
            let relative = folder.join(&entry);
            if entry == file && !self.root.join(&relative).is_dir() {
                let path = self.inside(&relative).map_err(|why| (relative.clone(), why))?;
                if versions.insert(1, path).is_some() {
                    return Err((
                        relative,
                        "version 1 is there twice, as a file and as a folder; keep one".into(),
                    ));
                }
                continue;
            }
            let Some(version) = version_number(&entry) else { continue };
            match self.version_file(&relative, file) {
                Ok(path) if versions.contains_key(&version) => {
                    drop(path);
                    return Err((
                        relative,
                        "version 1 is there twice, as a file and as a folder; keep one".into(),
                    ));
                }
                Ok(path) => drop(versions.insert(version, path)),
                Err((path, why)) => self.problem(Some(name), path, why),
            }
        }
        Ok(versions)
    }

    fn version_file(&self, version: &Path, file: &str) -> Result<PathBuf, (PathBuf, String)> {
        let folder = self.inside(version).map_err(|why| (version.to_owned(), why))?;
        let relative = version.join(file);
        if folder.join(file).symlink_metadata().is_err() {
            let others = list(&folder).unwrap_or_default();
            let other = others.iter().find(|name| name.starts_with("model."));
            let why = other.map_or_else(
                || format!("there is no {file}; add it"),
                |other| {
                    format!("there is no {file}, only {other}; raddle serves ONNX, export the model to it")
                },
            );
            return Err((version.to_owned(), why));
        }
        self.inside(&relative).map_err(|why| (relative, why))
    }

    /// The real path of `relative`, when that is inside the repository and a file or folder.
    fn inside(&self, relative: &Path) -> Result<PathBuf, String> {
        let real =
            self.root.join(relative).canonicalize().map_err(|error| format!("cannot be opened: {error}"))?;
        if !real.starts_with(self.root) {
            return Err("this link leads out of the repository; put the file itself there".into());
        }
        let kind = fs::metadata(&real).map_err(|error| format!("cannot be opened: {error}"))?.file_type();
        if kind.is_file() || kind.is_dir() {
            Ok(real)
        } else {
            Err("this is neither a file nor a folder".into())
        }
    }

    /// A text file of at most `limit` bytes.
    fn text(&self, relative: &Path, limit: u64) -> Result<String, String> {
        let path = self.inside(relative)?;
        let file = fs::File::open(path).map_err(|error| format!("cannot be opened: {error}"))?;
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
        if bytes.len() as u64 > limit {
            return Err(format!("is larger than {limit} bytes"));
        }
        String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".into())
    }

    fn problem(&mut self, model: Option<&str>, path: PathBuf, why: String) {
        self.found.problems.push(Problem { model: model.map(str::to_owned), path, why });
    }
}

/// Keeps the versions that `policy` wants.
fn choose(policy: &VersionPolicy, versions: &mut BTreeMap<u64, PathBuf>) -> Result<(), String> {
    match policy {
        VersionPolicy::All => {}
        VersionPolicy::Latest(count) => {
            while versions.len() > usize::try_from(*count).unwrap_or(usize::MAX) {
                versions.pop_first();
            }
        }
        VersionPolicy::Specific(wanted) => {
            let missing: Vec<String> =
                wanted.iter().filter(|version| !versions.contains_key(version)).map(u64::to_string).collect();
            if !missing.is_empty() || wanted.is_empty() {
                return Err(format!(
                    "version_policy names versions that are not there: {}",
                    missing.join(", ")
                ));
            }
            versions.retain(|version, _| wanted.contains(version));
        }
    }
    Ok(())
}

/// A version folder's number: decimal, at least 1, no leading zero.
fn version_number(name: &str) -> Option<u64> {
    let digits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) && !name.starts_with('0');
    if digits { name.parse().ok() } else { None }
}

/// Names in a folder, sorted; names that are not UTF-8 are shown with replacement characters and match nothing.
fn list(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}
