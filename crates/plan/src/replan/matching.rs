//! Matching seats to devices so that the most stays where it is: the assignment problem, by shortest augmenting paths
//! (Kuhn's Hungarian method).

/// The device of each seat. There are at least as many devices as seats.
pub(super) fn best(seats: usize, devices: usize, gain: impl Fn(usize, usize) -> u64) -> Vec<usize> {
    let cost = |seat: usize, device: usize| -i128::from(gain(seat, device));
    // Columns and rows are numbered from 1; 0 is nobody.
    let mut row_price = vec![0i128; seats + 1];
    let mut column_price = vec![0i128; devices + 1];
    let mut taken_by = vec![0usize; devices + 1];
    for seat in 1..=seats {
        taken_by[0] = seat;
        let mut slack = vec![i128::MAX; devices + 1];
        let mut from = vec![0usize; devices + 1];
        let mut done = vec![false; devices + 1];
        let mut at = 0;
        while taken_by[at] != 0 {
            done[at] = true;
            let row = taken_by[at];
            let (mut least, mut next) = (i128::MAX, 0);
            for device in (1..=devices).filter(|&device| !done[device]) {
                let reduced = cost(row - 1, device - 1) - row_price[row] - column_price[device];
                if reduced < slack[device] {
                    (slack[device], from[device]) = (reduced, at);
                }
                if slack[device] < least {
                    (least, next) = (slack[device], device);
                }
            }
            for device in 0..=devices {
                if done[device] {
                    row_price[taken_by[device]] += least;
                    column_price[device] -= least;
                } else if slack[device] < i128::MAX {
                    slack[device] -= least;
                }
            }
            at = next;
        }
        while at != 0 {
            taken_by[at] = taken_by[from[at]];
            at = from[at];
        }
    }
    let mut device_of = vec![0; seats];
    for (device, taken) in taken_by.iter().skip(1).enumerate() {
        if let Some(seat) = taken.checked_sub(1) {
            device_of[seat] = device;
        }
    }
    device_of
}
