//! Amounts as people write them: bytes, bytes a second, devices, machines. All faults of a list are told at once.

use anyhow::{Context as _, bail};
use plan::pipeline::Level;
use plan::{Devices, Group};

/// `16GiB`, `80GB` or a plain number of bytes.
pub(crate) fn bytes(text: &str) -> anyhow::Result<u64> {
    let value = scaled(text.strip_suffix('B').unwrap_or(text))
        .with_context(|| format!("{text:?} is not a number of bytes; write 16GiB or 80GB"))?;
    if !(0.0..9e15).contains(&value) {
        bail!("{text:?} is out of range for bytes");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float within the range")]
    let whole = value.round() as u64;
    Ok(whole)
}

/// `12GB/s`, `100Gbit/s` or a plain number of bytes a second.
pub(crate) fn rate(text: &str) -> anyhow::Result<f64> {
    let plain = text.strip_suffix("/s").unwrap_or(text);
    let value = match plain.strip_suffix("bit") {
        Some(bits) => scaled(bits).map(|bits| bits / 8.0),
        None => scaled(plain.strip_suffix('B').unwrap_or(plain)),
    };
    let value = value.with_context(|| format!("{text:?} is not a speed; write 12GB/s or 100Gbit/s"))?;
    if !value.is_finite() || value <= 0.0 {
        bail!("{text:?} moves nothing; give a positive speed");
    }
    Ok(value)
}

/// `4x16GiB,2x8GiB@0.5,1cpu`.
pub(crate) fn devices(text: &str) -> anyhow::Result<Devices> {
    let groups = list(text, group)?;
    Ok(Devices { groups, exchange_bytes_per_second: None })
}

/// `4x12GB/s,4x1.25GB/s`, innermost first.
pub(crate) fn machines(text: &str) -> anyhow::Result<Vec<Level>> {
    list(text, |item| {
        let (count, speed) =
            item.split_once('x').with_context(|| format!("{item:?} is not MEMBERSxSPEED; write 4x12GB/s"))?;
        let machines =
            count.trim().parse().with_context(|| format!("{count:?} is not a number of members"))?;
        Ok(Level { machines, bytes_per_second: rate(speed.trim())? })
    })
}

fn group(item: &str) -> anyhow::Result<Group> {
    let (what, speed) = match item.split_once('@') {
        Some((what, speed)) => {
            (what, speed.parse::<f64>().with_context(|| format!("{speed:?} in {item:?} is not a speed"))?)
        }
        None => (item, 1.0),
    };
    let number = |count: &str| {
        count.trim().parse().with_context(|| format!("{count:?} in {item:?} is not a number of devices"))
    };
    if let Some(count) = what.strip_suffix("cpus").or_else(|| what.strip_suffix("cpu")) {
        let count = number(count)?;
        return Ok(Group { speed, ..Group::cpus(count) });
    }
    let (count, memory) =
        what.split_once('x').with_context(|| format!("{item:?} is neither COUNTxMEMORY nor COUNTcpu"))?;
    Ok(Group { speed, ..Group::accelerators(number(count)?, bytes(memory.trim())?) })
}

fn list<T>(text: &str, one: impl Fn(&str) -> anyhow::Result<T>) -> anyhow::Result<Vec<T>> {
    let mut found = Vec::new();
    let mut faults = Vec::new();
    for item in text.split(',') {
        match one(item.trim()) {
            Ok(value) => found.push(value),
            Err(error) => faults.push(format!("{error:#}")),
        }
    }
    if faults.is_empty() { Ok(found) } else { bail!("{}", faults.join("\n")) }
}

/// A number with `k`, `M`, `G`, `T` or `Ki`, `Mi`, `Gi`, `Ti` behind it.
fn scaled(text: &str) -> Option<f64> {
    let scales = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("k", 1e3),
        ("K", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
    ];
    let found = scales.iter().find_map(|(name, scale)| Some((text.strip_suffix(name)?, *scale)));
    let (number, scale) = found.unwrap_or((text, 1.0));
    Some(number.trim().parse::<f64>().ok()? * scale)
}

#[cfg(test)]
mod tests {
    //! What is understood, and what is said when it is not.

    use super::*;
    use expect_test::expect;

    #[test]
    fn amounts_are_read_as_people_write_them() {
        assert_eq!(bytes("16GiB").unwrap(), 16 << 30);
        assert_eq!(bytes("80GB").unwrap(), 80_000_000_000);
        assert_eq!(bytes("123").unwrap(), 123);
        assert!((rate("100Gbit/s").unwrap() - 12.5e9).abs() < 1.0);
        let found = devices("4x16GiB, 2x8GiB@0.5,1cpu").unwrap();
        let counts: Vec<usize> = found.groups.iter().map(|group| group.count).collect();
        assert_eq!(counts, [4, 2, 1]);
        assert!((found.groups[1].speed - 0.5).abs() < f64::EPSILON);
        assert_eq!(
            machines("4x12GB/s,2x1.25GB/s").unwrap()[1],
            Level { machines: 2, bytes_per_second: 1.25e9 }
        );
    }

    #[test]
    fn every_fault_of_a_list_is_told() {
        let error = devices("4,x16GiB,2x8Gib,1cpu@fast").unwrap_err().to_string();
        expect![[r#"
            "4" is neither COUNTxMEMORY nor COUNTcpu
            "" in "x16GiB" is not a number of devices: cannot parse integer from empty string
            "8Gib" is not a number of bytes; write 16GiB or 80GB
            "fast" in "1cpu@fast" is not a speed: invalid float literal"#]]
        .assert_eq(&error);
        let error = machines("4x0GB/s").unwrap_err().to_string();
        expect![[r#""0GB/s" moves nothing; give a positive speed"#]].assert_eq(&error);
    }
}
