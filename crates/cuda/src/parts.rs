//! Which parts of a device's multiprocessors are made when it is opened. Sizes and alignment are the driver's, never a
//! table's; what cannot be had is refused with the sizes beside it, never widened.

/// Parts that are wanted, besides the whole device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartOptions {
    /// Every range of multiples of so many multiprocessors; 0 for none.
    pub grid: u32,
    /// Single parts.
    pub parts: Vec<PartWanted>,
    /// Runs that one multiprocessor may bear at once: as many streams has the whole device.
    pub overlap: u32,
    /// Not the whole device beside them.
    pub only: bool,
    /// Of the smallest groups of multiprocessors there are, which together are the whole device, but on which clusters of
    /// thread blocks may not fit: kernels with clusters are not chosen where they do not.
    pub fine: bool,
}

/// A part that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartWanted {
    /// Its first multiprocessor.
    pub first: u32,
    /// How many it has.
    pub units: u32,
    /// Streams on it.
    pub streams: u32,
}

/// Parts of a device are numbered and few.
const PARTS_MAX: usize = 1_024;

/// The parts to make on a device of `groups` groups of `size` multiprocessors, `total` in all: the whole device first, then
/// the largest. A part of all multiprocessors is the whole device.
pub(crate) fn layout(
    wanted: &PartOptions,
    (groups, size, total): (u32, u32, u32),
) -> Result<Vec<PartWanted>, String> {
    let mut faults = Vec::new();
    let mut parts = Vec::new();
    let usable = groups * size;
    let mut check = |what: &str, units: u32| {
        if units == 0 || !units.is_multiple_of(size) {
            let (below, above) = (units / size * size, units.div_ceil(size).max(1) * size);
            let near = if below == 0 { above.to_string() } else { format!("{below} or {above}") };
            faults.push(format!(
                "{what} of {units} multiprocessors cannot be had: the device gives multiples of {size}; nearest: {near}"
            ));
            return false;
        }
        true
    };
    if wanted.grid > 0 && check("a grid", wanted.grid) {
        let steps = usable / wanted.grid;
        for length in 1..=steps {
            for first in 0..=steps - length {
                let part = PartWanted { first: first * wanted.grid, units: length * wanted.grid, streams: 1 };
                if part.units < total {
                    parts.push(part);
                }
            }
        }
    }
    for part in &wanted.parts {
        let whole = part.first == 0 && part.units == total;
        let begins =
            |check: &mut dyn FnMut(&str, u32) -> bool| part.first == 0 || check("a beginning", part.first);
        if whole || (check("a part", part.units) && begins(&mut check)) {
            parts.push(*part);
        }
    }
    for part in &parts {
        if part.units < total && part.first + part.units > usable {
            faults.push(format!(
                "the part of {} multiprocessors from {} on ends beyond {usable}, the last that parts can have of {total}",
                part.units, part.first
            ));
        }
        if part.streams == 0 {
            faults.push(format!("the part from {} on has no stream; give it one", part.first));
        }
    }
    let whole = parts.iter().any(|part| part.units == total);
    if !whole && (!wanted.only || parts.is_empty()) {
        parts.push(PartWanted { first: 0, units: total, streams: wanted.overlap.max(1) });
    }
    let all: usize = parts.iter().map(|part| part.streams as usize).sum();
    if all > PARTS_MAX {
        faults
            .push(format!("{all} parts are more than {PARTS_MAX}; take a coarser grid than {}", wanted.grid));
    }
    if !faults.is_empty() {
        return Err(faults.join("; "));
    }
    parts.sort_by_key(|part| (std::cmp::Reverse(part.units), part.first));
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    /// An H200: 132 multiprocessors in 16 groups of 8, and 4 left over.
    const H200: (u32, u32, u32) = (16, 8, 132);

    fn part(first: u32, units: u32, streams: u32) -> PartWanted {
        PartWanted { first, units, streams }
    }

    #[test]
    fn grids_have_every_range_and_the_whole() {
        let wanted = PartOptions { grid: 64, overlap: 2, ..PartOptions::default() };
        assert_eq!(
            layout(&wanted, H200).unwrap(),
            [part(0, 132, 2), part(0, 128, 1), part(0, 64, 1), part(64, 64, 1)]
        );
        let only = PartOptions { only: true, ..wanted };
        assert_eq!(layout(&only, H200).unwrap(), [part(0, 128, 1), part(0, 64, 1), part(64, 64, 1)]);
        let fine = PartOptions { grid: 8, ..PartOptions::default() };
        assert_eq!(layout(&fine, H200).unwrap().len(), 16 * 17 / 2 + 1);
    }

    #[test]
    fn what_cannot_be_had_is_refused_with_what_can() {
        let say = |grid, parts: &[PartWanted]| {
            layout(&PartOptions { grid, parts: parts.to_vec(), overlap: 1, ..PartOptions::default() }, H200)
                .unwrap_err()
        };
        let lines = [
            say(12, &[]),
            say(0, &[part(0, 20, 1), part(4, 8, 1)]),
            say(0, &[part(120, 16, 1)]),
            say(0, &[part(0, 8, 0)]),
            say(0, &[part(0, 8, 2_000)]),
        ];
        expect![[r#"
            a grid of 12 multiprocessors cannot be had: the device gives multiples of 8; nearest: 8 or 16
            a part of 20 multiprocessors cannot be had: the device gives multiples of 8; nearest: 16 or 24; a beginning of 4 multiprocessors cannot be had: the device gives multiples of 8; nearest: 8
            the part of 16 multiprocessors from 120 on ends beyond 128, the last that parts can have of 132
            the part from 0 on has no stream; give it one
            2001 parts are more than 1024; take a coarser grid than 0"#]].assert_eq(&lines.join("\n"));
    }
}
