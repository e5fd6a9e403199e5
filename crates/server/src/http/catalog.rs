//! What the repository says about each model, looked up by name and version.

use crate::kserve::{IndexEntry, Labels, Terms};
use crate::live::{ModelInfo, ModelState};
use crate::repository::{ModelConfig, Problem, Repository};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Configurations and problems of a repository, for the front end.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    known: BTreeMap<(String, u64), Known>,
    problems: Vec<Problem>,
}

/// One model version.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) config: Arc<ModelConfig>,
    pub(super) labels: Arc<Labels>,
    pub(super) terms: Terms,
}

impl Catalog {
    /// The catalog of `repository`.
    #[must_use]
    pub fn new(repository: &Repository) -> Self {
        let known = repository.entries.iter().map(|entry| {
            let (config, labels) = (Arc::clone(&entry.config), Arc::clone(&entry.labels));
            let terms = config.terms();
            ((entry.name.clone(), entry.version), Known { config, labels, terms })
        });
        Self { known: known.collect(), problems: repository.problems.clone() }
    }

    /// What is configured for `model`; a model nobody configured gets the configuration of a bare one.
    pub(super) fn get(&self, model: &ModelInfo) -> Known {
        self.known.get(&(model.name.clone(), model.version)).cloned().unwrap_or_else(|| {
            let config = Arc::new(ModelConfig::bare(&model.name));
            Known { terms: config.terms(), labels: Arc::default(), config }
        })
    }

    /// The index: `models`, then those the repository could not offer, each once with all its reasons.
    pub(super) fn index(&self, models: &[Arc<ModelInfo>]) -> Vec<IndexEntry> {
        let mut index: Vec<IndexEntry> = models.iter().map(|model| IndexEntry::new(model)).collect();
        let mut broken: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for problem in &self.problems {
            let name = problem.model.as_deref().filter(|name| models.iter().all(|model| model.name != *name));
            if let Some(name) = name {
                broken.entry(name).or_default().push(problem.to_string());
            }
        }
        index.extend(broken.into_iter().map(|(name, reasons)| IndexEntry {
            name: name.to_owned(),
            version: String::new(),
            state: "UNAVAILABLE",
            reason: reasons.join("; "),
        }));
        index
    }
}

/// Whether `model` can be asked.
pub(super) fn is_ready(model: &ModelInfo) -> bool {
    model.state == ModelState::Ready
}
