//! The metrics of a worker: one struct, methods named after what happened.
//!
//! Labels are bounded: stage, namespace, and closed sets of words; never ids or error texts.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Error, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    Opts, Registry,
};

/// Upper bounds in seconds: from a no-op to a handler of ten minutes.
const SECONDS: [f64; 14] = [
    0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 300.0, 600.0,
];

/// Upper bounds in entries of one commit.
const ENTRIES: [f64; 7] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

/// Every metric of one worker.
#[derive(Clone, Debug)]
pub struct WorkerMetrics {
    entries: IntCounterVec,
    settlements: IntCounterVec,
    handler: HistogramVec,
    wait: Histogram,
    slots: IntGauge,
    busy_slots: IntGauge,
    held: IntGauge,
    reclaimed: IntCounter,
    lost: IntCounter,
    leases_lost: IntCounter,
    leases_late: IntCounter,
    promoted: IntCounter,
    commit: Histogram,
    commit_entries: Histogram,
    breaker: IntGauge,
    sessions: IntCounterVec,
    redis_up: Gauge,
}

impl WorkerMetrics {
    /// Registers the metrics of one stage's worker.
    ///
    /// # Errors
    /// A name is registered already.
    pub fn register(registry: &Registry, namespace: &str, stage: &str) -> Result<Self, Error> {
        let make = Maker {
            registry,
            namespace,
            stage,
        };
        Ok(Self {
            entries: make.counters(
                "entries_total",
                "Runs of the handler, by outcome.",
                "outcome",
            )?,
            settlements: make.counters(
                "settlements_total",
                "Entries settled, by settlement.",
                "settlement",
            )?,
            handler: make.add(HistogramVec::new(
                make.histogram("handler_seconds", "Time of one run, by outcome.", &SECONDS),
                &["outcome"],
            )?)?,
            wait: make.add(Histogram::with_opts(make.histogram(
                "wait_seconds",
                "Time from the adding of an entry to its first start.",
                &SECONDS,
            ))?)?,
            slots: make.gauge("slots", "Handlers that may run at once.")?,
            busy_slots: make.gauge("busy_slots", "Handlers that run.")?,
            held: make.gauge(
                "held_entries",
                "Entries held: waiting, running or being settled.",
            )?,
            reclaimed: make.counter("reclaimed_total", "Entries claimed from silent workers.")?,
            lost: make.counter("lost_total", "Entries trimmed before they were done.")?,
            leases_lost: make.counter("leases_lost_total", "Entries taken from this worker.")?,
            leases_late: make.counter("leases_late_total", "Renewals that came late.")?,
            promoted: make.counter("promoted_total", "Delayed entries made ready.")?,
            commit: make.add(Histogram::with_opts(make.histogram(
                "commit_seconds",
                "Time of one batch of settlements.",
                &SECONDS,
            ))?)?,
            commit_entries: make.add(Histogram::with_opts(make.histogram(
                "commit_entries",
                "Entries of one batch of settlements.",
                &ENTRIES,
            ))?)?,
            breaker: make.gauge("breaker_open", "1 while the handler cannot be reached.")?,
            sessions: make.counters(
                "sessions_total",
                "Sessions with Redis, by their end.",
                "end",
            )?,
            redis_up: make.add(Gauge::with_opts(
                make.opts("redis_up", "1 while a session with Redis lives."),
            )?)?,
        })
    }

    /// A run of the handler ended.
    pub fn ended(&self, outcome: &str, took: Duration) {
        self.entries.with_label_values(&[outcome]).inc();
        self.handler
            .with_label_values(&[outcome])
            .observe(took.as_secs_f64());
    }

    /// An entry was settled.
    pub fn settled(&self, settlement: &str) {
        self.settlements.with_label_values(&[settlement]).inc();
    }

    /// A batch of settlements came back.
    pub fn committed(&self, entries: usize, took: Duration) {
        self.commit.observe(took.as_secs_f64());
        self.commit_entries
            .observe(u32::try_from(entries).map_or(f64::MAX, f64::from));
    }

    /// An entry waited so long for its first start.
    pub fn waited(&self, wait: Duration) {
        self.wait.observe(wait.as_secs_f64());
    }

    /// The load of this moment.
    pub fn load(&self, slots: usize, busy: usize, held: usize) {
        let number = |n| i64::try_from(n).unwrap_or(i64::MAX);
        self.slots.set(number(slots));
        self.busy_slots.set(number(busy));
        self.held.set(number(held));
    }

    /// Entries were claimed from silent workers.
    pub fn reclaimed(&self, entries: u64) {
        self.reclaimed.inc_by(entries);
    }

    /// Entries were found trimmed.
    pub fn lost(&self, entries: u64) {
        self.lost.inc_by(entries);
    }

    /// Delayed entries were made ready.
    pub fn promoted(&self, entries: u64) {
        self.promoted.inc_by(entries);
    }

    /// An entry was taken from this worker.
    pub fn lease_lost(&self) {
        self.leases_lost.inc();
    }

    /// A renewal came late.
    pub fn lease_late(&self) {
        self.leases_late.inc();
    }

    /// The breaker opened or closed.
    pub fn breaker(&self, open: bool) {
        self.breaker.set(i64::from(open));
    }

    /// A session began.
    pub fn session_began(&self) {
        self.redis_up.set(1.0);
    }

    /// A session ended, or did not begin.
    pub fn session_ended(&self, end: &str) {
        self.redis_up.set(0.0);
        self.sessions.with_label_values(&[end]).inc();
    }
}

/// Makes and registers metrics that all carry the stage's labels.
struct Maker<'a> {
    registry: &'a Registry,
    namespace: &'a str,
    stage: &'a str,
}

impl Maker<'_> {
    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(format!("streamstage_worker_{name}"), help)
            .const_label("stage_namespace", self.namespace)
            .const_label("stage", self.stage)
    }

    fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> HistogramOpts {
        HistogramOpts::from(self.opts(name, help)).buckets(buckets.to_vec())
    }

    fn add<C: Collector + Clone + 'static>(&self, metric: C) -> Result<C, Error> {
        self.registry.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, Error> {
        self.add(IntCounter::with_opts(self.opts(name, help))?)
    }

    fn counters(&self, name: &str, help: &str, label: &str) -> Result<IntCounterVec, Error> {
        self.add(IntCounterVec::new(self.opts(name, help), &[label])?)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, Error> {
        self.add(IntGauge::with_opts(self.opts(name, help))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_carries_the_stage_and_its_own_labels_only() {
        let registry = Registry::new();
        let metrics = WorkerMetrics::register(&registry, "shop", "mail").unwrap();
        metrics.ended("Done", Duration::from_millis(3));
        metrics.settled("done");
        metrics.session_ended("Disconnected");
        let families = registry.gather();
        assert!(families.len() > 12);
        for family in families {
            assert!(
                family.name().starts_with("streamstage_worker_"),
                "{}",
                family.name()
            );
            for metric in family.get_metric() {
                let labels: Vec<_> = metric
                    .get_label()
                    .iter()
                    .map(prometheus::proto::LabelPair::name)
                    .collect();
                assert!(labels.contains(&"stage") && labels.contains(&"stage_namespace"));
                assert!(labels.len() <= 3, "{labels:?}");
            }
        }
    }
}
