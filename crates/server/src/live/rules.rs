//! Constraints between tenants, as people name them: by the models' names in the repository. A model with free sizes is a
//! model of the world for each of its shapes, and a constraint is about all of them.

use sched::node::Rule;
use std::collections::BTreeMap;
use vocab::ModelId;

/// A constraint between tenants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantRule {
    /// Runs of these two never share a device at the same time.
    Apart(String, String),
    /// Others leave room for a run of this one on a part of at least so many units.
    Floor(String, u32),
}

impl TenantRule {
    /// The models it names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let (first, second) = match self {
            Self::Apart(a, b) => (a, Some(b)),
            Self::Floor(model, _) => (model, None),
        };
        std::iter::once(first).chain(second).map(String::as_str)
    }
}

/// The world's constraints, for every shape of every tenant that is known.
pub(super) fn expand(rules: &[TenantRule], tenants: &BTreeMap<String, Vec<ModelId>>) -> Vec<Rule> {
    let of = |name: &String| tenants.get(name).map_or(&[][..], Vec::as_slice);
    let mut expanded = Vec::new();
    for rule in rules {
        match rule {
            TenantRule::Apart(a, b) => {
                expanded.extend(of(a).iter().flat_map(|a| of(b).iter().map(|b| Rule::Apart(*a, *b))));
            }
            TenantRule::Floor(model, units) => {
                expanded.extend(of(model).iter().map(|model| Rule::Floor { model: *model, units: *units }));
            }
        }
    }
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constraint_is_about_every_shape_of_a_tenant() {
        let tenants =
            BTreeMap::from([("a".into(), vec![ModelId(0), ModelId(2)]), ("b".into(), vec![ModelId(1)])]);
        let rules = [
            TenantRule::Apart("a".into(), "b".into()),
            TenantRule::Floor("a".into(), 2),
            TenantRule::Floor("later".into(), 1),
        ];
        let floor = |model| Rule::Floor { model: ModelId(model), units: 2 };
        let apart = |model| Rule::Apart(ModelId(model), ModelId(1));
        assert_eq!(expand(&rules, &tenants), [apart(0), apart(2), floor(0), floor(2)]);
    }
}
