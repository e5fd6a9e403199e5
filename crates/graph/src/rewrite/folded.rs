//! Constants made by folding, shared by all graphs of a model: a weight exists once, whatever the batch sizes in use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use tract_onnx::prelude::{Tensor, TypedModel};
use tract_onnx::tract_core::ops::konst::Const;

/// What a constant was made from: a recipe and the addresses of its ingredients.
type Key = (String, Vec<usize>);

/// The constants of one model.
#[derive(Debug, Default)]
pub(crate) struct Folded {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Addresses of constants that live as long as the model: the imported ones, and those in `made`.
    addresses: BTreeSet<usize>,
    /// Keeps the imported constants alive, so that an address stays theirs.
    imported: Vec<Arc<Tensor>>,
    made: BTreeMap<Key, Arc<Tensor>>,
}

impl Folded {
    /// Knows the constants of `model`, and none made from them yet.
    pub(crate) fn of(model: &TypedModel) -> Self {
        let constants = model.nodes().iter().filter_map(|node| node.op_as::<Const>());
        let imported: Vec<Arc<Tensor>> = constants.map(|constant| constant.val().clone()).collect();
        let addresses = imported.iter().map(address).collect();
        Self { known: Mutex::new(Known { addresses, imported, made: BTreeMap::new() }) }
    }

    /// The constant that `recipe` makes from `ingredients`, made at most once if they belong to the model.
    pub(crate) fn get(
        &self,
        recipe: &str,
        ingredients: &[&Arc<Tensor>],
        make: impl FnOnce() -> Option<Tensor>,
    ) -> Option<Arc<Tensor>> {
        // A thread that panicked while holding the lock has at worst made a constant in vain.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// How many constants have been made, and how many were imported.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        (known.made.len(), known.imported.len())
    }
}

fn address(tensor: &Arc<Tensor>) -> usize {
    Arc::as_ptr(tensor).addr()
}
