//! Where a value lies on the device: a place, a shape and strides. Slices, transpositions and broadcasts are views.

use crate::lower::Kind;

/// What memory a view is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Place {
    /// A buffer of the program's arena.
    Buffer(usize),
    /// A packed weight.
    Weight(usize),
}

/// A strided view of one buffer or weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) place: Place,
    pub(crate) kind: Kind,
    /// Elements from the place's beginning.
    pub(crate) offset: usize,
    /// Dimensions, outermost first.
    pub(crate) shape: Vec<usize>,
    /// Elements between neighbours, per dimension; zero repeats, negative runs backwards.
    pub(crate) strides: Vec<isize>,
}

/// Strides of a dense tensor whose dimensions lie in this order, outermost first.
pub(crate) fn strides_in_order(shape: &[usize], order: &[usize]) -> Vec<isize> {
    let mut strides = vec![0; shape.len()];
    let mut step = 1isize;
    for axis in order.iter().rev() {
        strides[*axis] = step;
        step *= signed(shape[*axis]);
    }
    strides
}

/// `[batch, spatial…, channels]` for a tensor `[batch, channels, spatial…]`.
pub(crate) fn channels_last(rank: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rank).filter(|axis| *axis != 1).collect();
    order.push(1);
    order
}

#[expect(clippy::cast_possible_wrap, reason = "imports bound tensors far below the sign bit")]
pub(crate) const fn signed(size: usize) -> isize {
    size as isize
}

impl View {
    /// A dense row-major view from the beginning of a place.
    pub(crate) fn dense(place: Place, kind: Kind, shape: &[usize]) -> Self {
        let order: Vec<usize> = (0..shape.len()).collect();
        Self { place, kind, offset: 0, shape: shape.to_vec(), strides: strides_in_order(shape, &order) }
    }

    pub(crate) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether elements lie row-major without gaps.
    pub(crate) fn is_row_major(&self) -> bool {
        self.is_dense_in(&(0..self.shape.len()).collect::<Vec<_>>())
    }

    /// Whether elements lie without gaps in this order of dimensions.
    pub(crate) fn is_dense_in(&self, order: &[usize]) -> bool {
        let mut step = 1;
        order.iter().rev().all(|axis| {
            let fits = self.shape[*axis] == 1 || self.strides[*axis] == step;
            step *= signed(self.shape[*axis]);
            fits
        })
    }

    /// Dimensions from the widest stride to the narrowest; of equal strides the outer one first.
    pub(crate) fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.shape.len()).collect();
        order.sort_by_key(|axis| std::cmp::Reverse(self.strides[*axis].unsigned_abs()));
        // A dimension of one lies anywhere: keep it where row-major would have it.
        order
    }

    /// The same elements without this axis of length one.
    pub(crate) fn without_axis(&self, axis: usize) -> Self {
        let mut view = self.clone();
        view.shape.remove(axis);
        view.strides.remove(axis);
        view
    }

    /// With a new axis of length one.
    pub(crate) fn with_axis(&self, axis: usize) -> Self {
        let mut view = self.clone();
        view.shape.insert(axis, 1);
        view.strides.insert(axis, 0);
        view
    }

    pub(crate) fn moved(&self, from: usize, to: usize) -> Self {
        let mut view = self.clone();
        let (size, stride) = (view.shape.remove(from), view.strides.remove(from));
        view.shape.insert(to, size);
        view.strides.insert(to, stride);
        view
    }

    /// `length` indices of an axis from `start`, `step` apart.
    pub(crate) fn sliced(&self, axis: usize, start: usize, step: isize, length: usize) -> Self {
        let mut view = self.clone();
        let shift = signed(start) * view.strides[axis];
        view.offset = view.offset.checked_add_signed(shift).unwrap_or(view.offset);
        view.shape[axis] = length;
        view.strides[axis] *= step;
        view
    }

    /// Repeats axes of length one up to `shape`; ranks are equal.
    pub(crate) fn broadcast(&self, shape: &[usize]) -> Self {
        let mut view = self.clone();
        for (axis, size) in shape.iter().enumerate() {
            if view.shape[axis] == 1 && *size != 1 {
                view.strides[axis] = 0;
                view.shape[axis] = *size;
            }
        }
        view
    }

    /// The same elements in another shape, when strides can say it.
    pub(crate) fn reshaped(&self, shape: &[usize]) -> Option<Self> {
        let mut strides = vec![0isize; shape.len()];
        // Walk both shapes from the inside, matching groups of equal size.
        let old: Vec<usize> = (0..self.shape.len()).filter(|axis| self.shape[*axis] != 1).collect();
        let new: Vec<usize> = (0..shape.len()).filter(|axis| shape[*axis] != 1).collect();
        let (mut i, mut j) = (old.len(), new.len());
        while i > 0 && j > 0 {
            let (i_end, j_end) = (i, j);
            let (mut a, mut b) = (self.shape[old[i - 1]], shape[new[j - 1]]);
            i -= 1;
            j -= 1;
            while a != b {
                if a < b {
                    a *= self.shape[*old.get(i.checked_sub(1)?)?];
                    i -= 1;
                } else {
                    b *= shape[*new.get(j.checked_sub(1)?)?];
                    j -= 1;
                }
            }
            // The old group must be one run of equal steps.
            for pair in old[i..i_end].windows(2) {
                if self.strides[pair[0]] != self.strides[pair[1]] * signed(self.shape[pair[1]]) {
                    return None;
                }
            }
            let mut step = self.strides[old[i_end - 1]];
            for axis in new[j..j_end].iter().rev() {
                strides[*axis] = step;
                step *= signed(shape[*axis]);
            }
        }
        (i == 0 && j == 0).then(|| Self { shape: shape.to_vec(), strides, ..self.clone() })
    }

    /// One stride for several axes taken as one, outermost first; `None` when they do not run evenly.
    pub(crate) fn collapsed(&self, axes: &[usize]) -> Option<(usize, isize)> {
        let kept: Vec<usize> = axes.iter().copied().filter(|axis| self.shape[*axis] != 1).collect();
        let Some(last) = kept.last() else { return Some((1, 0)) };
        for pair in kept.windows(2) {
            if self.strides[pair[0]] != self.strides[pair[1]] * signed(self.shape[pair[1]]) {
                return None;
            }
        }
        Some((kept.iter().map(|axis| self.shape[*axis]).product(), self.strides[*last]))
    }
}
