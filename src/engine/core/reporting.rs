//! What a worker tells of itself. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Core;
use super::held::Phase;
use crate::engine::report::{BreakerReport, RefusedReport, Report, millis};
use crate::streams::Refusal;

impl Core {
    /// The report of this moment.
    pub fn report(&self, now: Duration) -> Report {
        let delivery = &self.config.delivery;
        Report {
            held: self.held.len(),
            oldest_held_ms: self.oldest_held(now).map(millis),
            oldest_running_ms: self.oldest_running(now).map(millis),
            breaker: self.breaker_report(now),
            refused: self.refused_report(now),
            unsafe_eviction: self.unsafe_eviction.clone(),
            ..Report::new(
                &self.tallies,
                delivery.visibility_timeout,
                delivery.concurrency,
            )
        }
    }

    fn breaker_report(&self, now: Duration) -> BreakerReport {
        let open = self.breaker.open();
        BreakerReport {
            open: open.is_some(),
            reason: self.handler_trouble().map(str::to_owned),
            for_ms: open.map(|(since, _)| millis(now.saturating_sub(since))),
        }
    }

    fn refused_report(&self, now: Duration) -> Vec<RefusedReport> {
        let mut found: BTreeMap<(String, &'static str), (Refusal, usize, Duration)> =
            BTreeMap::new();
        for (_, held) in self.held.iter() {
            let Phase::Settling(settling) = &held.phase else {
                continue;
            };
            let Some((refusal, since)) = &settling.refused else {
                continue;
            };
            let key = (refusal.key.clone(), settling.settlement.name());
            let (_, count, oldest) = found.entry(key).or_insert((refusal.clone(), 0, *since));
            *count += 1;
            *oldest = (*oldest).min(*since);
        }
        let rows = found
            .into_iter()
            .map(|((_, settlement), (refusal, entries, since))| {
                let settlement = settlement.to_owned();
                RefusedReport {
                    refusal,
                    settlement,
                    entries,
                    for_ms: millis(now.saturating_sub(since)),
                }
            });
        rows.collect()
    }

    /// The longest time that an entry has been held.
    fn oldest_held(&self, now: Duration) -> Option<Duration> {
        let since = self.held.iter().map(|(_, held)| held.since);
        since.min().map(|since| now.saturating_sub(since))
    }

    /// The longest time that an entry has been running.
    fn oldest_running(&self, now: Duration) -> Option<Duration> {
        let since = self.held.iter().filter_map(|(_, held)| match held.phase {
            Phase::Running { since, .. } => Some(since),
            Phase::Waiting | Phase::Starting { .. } | Phase::Limbo { .. } | Phase::Settling(_) => {
                None
            }
        });
        since.min().map(|since| now.saturating_sub(since))
    }
}
