//! Constants of a model, shared by all its graphs: a weight exists once, whatever the sizes in use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tract_onnx::prelude::Tensor;

/// What a constant was made from: a recipe and the addresses of its ingredients.
type Key = (String, Vec<usize>);

/// The constants of one model.
#[derive(Debug, Default)]
pub(crate) struct Folded {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Constants of the file or computed from it alone, by name: each name's first.
    shared: BTreeMap<String, Arc<Tensor>>,
    /// Constants made by folding.
    made: BTreeMap<Key, Arc<Tensor>>,
    /// Addresses of all of those; they live as long as the model, so that an address stays theirs.
    addresses: BTreeSet<usize>,
}

impl Folded {
    /// The constant that `name` has in the model's first graph, if it is the same as `constant`; otherwise, for what
    /// depends on sizes, `constant` itself.
    pub(crate) fn share(&self, name: &str, constant: &Arc<Tensor>) -> Arc<Tensor> {
        let mut known = self.lock();
        if known.addresses.contains(&address(constant)) {
            return constant.clone();
        }
        if let Some(first) = known.shared.get(name) {
            return if first == constant { first.clone() } else { constant.clone() };
        }
        known.addresses.insert(address(constant));
        known.shared.insert(name.to_owned(), constant.clone());
        constant.clone()
    }

    /// The constant that `recipe` makes from `ingredients`, made at most once if they are shared.
    pub(crate) fn get(
        &self,
        recipe: &str,
        ingredients: &[&Arc<Tensor>],
        make: impl FnOnce() -> Option<Tensor>,
    ) -> Option<Arc<Tensor>> {
        let mut known = self.lock();
        let key = (recipe.to_owned(), ingredients.iter().map(|tensor| address(tensor)).collect::<Vec<_>>());
        if let Some(made) = known.made.get(&key) {
            return Some(made.clone());
        }
        let made = Arc::new(make()?);
        if key.1.iter().all(|ingredient| known.addresses.contains(ingredient)) {
            known.addresses.insert(address(&made));
            known.made.insert(key, made.clone());
        }
        Some(made)
    }

    /// A thread that panicked while holding the lock has at worst made a constant in vain.
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn address(tensor: &Arc<Tensor>) -> usize {
    Arc::as_ptr(tensor).addr()
}
