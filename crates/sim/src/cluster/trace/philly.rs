//! The Philly trace (ATC'19), flattened to one line a job: submission, duration, GPUs, virtual cluster.

use super::table::Table;
use super::{Trace, TraceError, TraceJob};
use vocab::{Bytes, Span, Time};

/// Reads the whole trace, or one virtual cluster of it. The first arrival is the zero of time; jobs that never ran (no
/// duration or no GPU) are left out, as the trace's own analysis does.
///
/// # Errors
/// When anything is wrong with it: every problem, with its line.
pub fn philly(text: &str, cluster: Option<&str>) -> Result<Trace, TraceError> {
    let needed = ["timestamp", "duration", "num_gpus", "cluster"];
    let (rows, problems) = Table::new(text, &needed).read(|row| {
        let arrival = seconds(row.text("timestamp"));
        if arrival.is_none() {
            row.problem(format!("timestamp is \"{}\", not YYYY-MM-DD hh:mm:ss", row.text("timestamp")));
        }
        let (gpus, duration) = (row.gpus("num_gpus"), row.number("duration"));
        let job = (row.line, arrival?, gpus?, Span::from_secs_f64(duration?));
        let wanted = cluster.is_none_or(|name| name == row.text("cluster"));
        Some((job, wanted && gpus != Some(0) && job.3 > Span::ZERO))
    });
    let idle = rows.iter().filter(|((.., gpus, duration), _)| *gpus == 0 || *duration == Span::ZERO).count();
    let rows: Vec<_> = rows.into_iter().filter(|(_, wanted)| *wanted).map(|(job, _)| job).collect();
    let zero = rows.iter().map(|(_, arrival, ..)| *arrival).min().unwrap_or(0);
    let job = |(line, arrival, gpus, duration): (usize, u64, u32, Span)| TraceJob {
        line,
        name: line.to_string(),
        model: String::new(),
        arrival: Time::ZERO + Span::from_ms((arrival - zero) * 1_000),
        gpus,
        iterations: 1,
        iteration: duration,
        restart: Span::ZERO,
        cpu_milli: 0,
        memory: Bytes(0),
        speedup_micro: 1_000_000,
        batch: 0,
    };
    let trace = Trace::checked(rows.into_iter().map(job).collect(), problems)?;
    Ok(if idle == 0 {
        trace
    } else {
        trace.noting(format!("{idle} jobs of the file that never ran left out"))
    })
}

/// Seconds from 1 March of year 0 to `YYYY-MM-DD hh:mm:ss`.
fn seconds(text: &str) -> Option<u64> {
    let (date, clock) = text.split_once(' ')?;
    let mut date = date.split('-').map(str::parse::<u64>);
    let mut clock = clock.split(':').map(str::parse::<u64>);
    let next = |numbers: &mut dyn Iterator<Item = Result<u64, _>>, low: u64, high: u64| {
        numbers.next()?.ok().filter(|number| (low..=high).contains(number))
    };
    let (year, month, day) = (next(&mut date, 1, 9_999)?, next(&mut date, 1, 12)?, next(&mut date, 1, 31)?);
    let (hour, minute, second) =
        (next(&mut clock, 0, 23)?, next(&mut clock, 0, 59)?, next(&mut clock, 0, 60)?);
    // Years begin in March, so that a leap day is a year's last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}
