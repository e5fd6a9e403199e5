//! The rows of a record made again from the journals of its live runs, for a simulator that has changed since. Needs no GPU.

use super::foretell::{Live, Parts, count};
use super::{Settings, cases, neighbours, policies, read, report, table, unit_times};
use anyhow::{Context as _, ensure};
use sched::node::Event;
use sched::node::policy::Choice;
use std::path::Path;

/// Every policy with a journal in `out`; whether every bar was met.
pub(super) fn run(settings: &Settings, out: &Path) -> anyhow::Result<bool> {
    let mut rows = table::read(out)?;
    let slowdowns = neighbours::read(out)?;
    let least = unit_times(out, settings, &[])?;
    for policy in &policies(settings, None)? {
        let journal = out.join(format!("{policy}.jsonl"));
        if !journal.exists() {
            continue;
        }
        let choice = Choice::named(policy).with_context(|| format!("no policy is called {policy:?}"))?;
        let records = read(&journal)?;
        let sent: Vec<usize> = rows
            .iter()
            .filter(|row| row.policy == *policy && row.driver == "live")
            .map(|row| usize::try_from(row.asked))
            .collect::<Result<_, _>>()?;
        let mut cases = cases(settings, policy);
        ensure!(sent.len() == cases.len(), "{policy}: {} live rows of {} cases", sent.len(), cases.len());
        cases.iter_mut().zip(&sent).for_each(|(case, sent)| case.sent = *sent);
        let arrived = |event: &Event| matches!(event, Event::RequestArrived { .. });
        let arrivals =
            records.iter().flat_map(|record| &record.events).filter(|event| arrived(event)).count();
        let warmed = arrivals
            .checked_sub(sent.iter().sum())
            .with_context(|| format!("{policy}: the journal has fewer arrivals than were sent"))?;
        let parts = Parts::read(&records)?;
        let (slowdowns, least) = (&slowdowns, &least);
        let live = Live { settings, policy, choice: &choice, parts: &parts, slowdowns, least };
        let found = count(&live, &records, (&cases, warmed))?;
        found.iter().for_each(table::print);
        rows.retain(|row| row.policy != *policy);
        rows.extend(found);
    }
    table::write(out, &rows)?;
    report::judge(out, settings, &rows)
}
