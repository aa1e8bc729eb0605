//! The real engine loop on the broker in memory, under paused time: random crashes, outages, pauses and refusals.
//!
//! Everything random comes from a seed, which a failure prints; hours of a stage pass in a moment. What must hold at the
//! end of every schedule: each entry is done or a dead letter, and no content was committed twice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use streamstage::clock::Clock;
use streamstage::engine::handler::{Handler, Start};
use streamstage::engine::observer::Health;
use streamstage::engine::outcome::{Failure, Outcome, UnavailableReason};
use streamstage::engine::{self, Identity, Surroundings};
use streamstage::shutdown::Shutdown;
use streamstage::streams::memory::{MemoryBroker, MemoryServer};
use streamstage::streams::{Broker, ConsumerName};
use streamstage::worker_config::WorkerConfig;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const SEEDS: u64 = 120;

/// Starts that may end in an error, and starts that may end in nothing, by turns: with few some entries are given up.
const LIMITS: [u32; 2] = [100, 3];
const ENTRIES: usize = 60;
const WORKERS: usize = 3;
const FAULTS: usize = 25;
const SETTLED_WITHIN: Duration = Duration::from_secs(6 * 3600);

const CONFIG: &str = r#"{"v":1,"namespace":"shop","stage":"mail",
    "redis":{"address":"memory:0","database":0,"credentials":"None","connectTimeout":1000,"commandTimeout":2000},
    "source":{"stream":"orders","group":"mail","groupCreation":"IfMissing","startFrom":"Beginning"},
    "delivery":{"visibilityTimeout":9000,"handlerTimeout":600000,"reclaimInterval":4000,
                "maxDeliveries":100,"concurrency":4,"blockTimeout":2000},
    "idempotency":{"keyFields":["k"],"ledger":"AtCommit","window":864000000},
    "output":{"stream":"{orders}:out","maxLength":0},
    "retry":{"maxAttempts":100,"initialDelay":1000,"maxDelay":20000,"multiplierPercent":200,
             "jitterPercent":20,"nonRetryableErrors":[]},
    "deadLetter":{"stream":"{orders}:mail:dead","maxLength":0,"maxErrorBytes":1000,"maxTraceBytes":4000},
    "handler":{"Exec":{"command":["none"]}},"drainTimeout":5000}"#;

/// Runs of up to 20 seconds with every outcome; it notes when two of one entry overlap.
#[derive(Clone)]
struct Scripted {
    random: Arc<Mutex<fastrand::Rng>>,
    starts: Arc<Mutex<usize>>,
}

impl Scripted {
    fn draw(&self, below: u64) -> u64 {
        self.random.lock().unwrap().u64(0..below)
    }

    fn outcome(&self, start: &Start) -> Outcome {
        let error = Failure::new("Random", "as the seed says");
        match self.draw(20) {
            0 | 1 => Outcome::Retry { error, after: None },
            2 => Outcome::Busy {
                error,
                after: Some(Duration::from_secs(3)),
            },
            3 => Outcome::Crashed { error, alone: true },
            4 => Outcome::Crashed {
                error,
                alone: false,
            },
            5 => Outcome::Unavailable {
                reason: UnavailableReason::ConnectionRefused,
            },
            _ => Outcome::Done {
                outputs: vec![start.entry.fields.clone()],
            },
        }
    }
}

impl Handler for Scripted {
    async fn call(&self, start: Start, cancel: CancellationToken) -> Outcome {
        *self.starts.lock().unwrap() += 1;
        let takes = Duration::from_millis(self.draw(20_000));
        tokio::select! {
            () = cancel.cancelled() => Outcome::Cancelled,
            () = tokio::time::sleep(takes) => self.outcome(&start),
        }
    }

    async fn probe(&self) -> Result<(), UnavailableReason> {
        match self.draw(3) {
            0 => Err(UnavailableReason::ConnectionRefused),
            _ => Ok(()),
        }
    }

    async fn stop(&self) {}
}

struct Simulation {
    clock: Clock,
    server: MemoryServer,
    handler: Scripted,
    random: fastrand::Rng,
    workers: Vec<(Shutdown, JoinHandle<()>)>,
    limit: u32,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let clock = Clock::start();
        let epoch = Duration::from_secs(1_700_000_000);
        let mut random = fastrand::Rng::with_seed(seed);
        let handler = Scripted {
            random: Arc::new(Mutex::new(random.fork())),
            starts: Arc::default(),
        };
        let server = MemoryServer::new(move || epoch + clock.now());
        let limit = if seed.is_multiple_of(2) {
            LIMITS[0]
        } else {
            LIMITS[1]
        };
        Self {
            clock,
            server,
            handler,
            random,
            workers: Vec::new(),
            limit,
        }
    }

    fn broker(&mut self) -> (WorkerConfig, Identity, MemoryBroker) {
        let mut config = WorkerConfig::parse(CONFIG).unwrap();
        config.retry.max_attempts = self.limit;
        config.delivery.max_deliveries = self.limit;
        let consumer = ConsumerName::unique("pod", self.random.u32(..));
        let settings = engine::settings(&config, consumer.clone()).unwrap();
        let identity = Identity {
            consumer,
            pod: "pod".to_owned(),
            image: None,
        };
        (config, identity, self.server.broker(settings))
    }

    fn start_worker(&mut self) {
        let (config, identity, broker) = self.broker();
        let shutdown = Shutdown::manual();
        let around = Surroundings {
            clock: self.clock,
            registry: prometheus::Registry::new(),
            health: Arc::new(Health::default()),
            shutdown: shutdown.clone(),
        };
        let handler = self.handler.clone();
        let run = async move {
            engine::run(config, Arc::new(broker), handler, &identity, around)
                .await
                .unwrap();
        };
        self.workers.push((shutdown, tokio::spawn(run)));
    }

    async fn pass(&mut self, at_most_ms: u64) {
        tokio::time::sleep(Duration::from_millis(self.random.u64(0..at_most_ms))).await;
    }

    async fn fault(&mut self) {
        match self.random.u32(0..8) {
            0 | 1 => {
                // A crash: everything the process did stops where it is.
                let victim = self.random.usize(0..self.workers.len());
                self.workers.swap_remove(victim).1.abort();
                self.start_worker();
            }
            2 => {
                // A planned stop beside a new worker.
                let victim = self.random.usize(0..self.workers.len());
                self.workers.swap_remove(victim).0.drain.cancel();
                self.start_worker();
            }
            3 => self.server.drop_connections(),
            4 => {
                self.server.set_down(true);
                self.pass(20_000).await;
                self.server.set_down(false);
            }
            5 => {
                self.server.set_paused(true);
                self.pass(20_000).await;
                self.server.set_paused(false);
            }
            6 => self.server.lose_replies(self.random.u32(1..4)),
            _ => {
                self.server.set_full(true);
                self.pass(20_000).await;
                self.server.set_full(false);
            }
        }
    }

    async fn run(&mut self) {
        for _ in 0..WORKERS {
            self.start_worker();
        }
        for entry in 0..ENTRIES {
            let key = format!("{entry}").into_bytes();
            self.server.add("orders", vec![(b"k".to_vec(), key)]);
        }
        for _ in 0..FAULTS {
            self.pass(15_000).await;
            self.fault().await;
        }
    }

    async fn settle(&mut self, seed: u64) {
        let (_, _, watcher) = self.broker();
        let deadline = self.clock.now() + SETTLED_WITHIN;
        loop {
            if watcher.connect().await.is_ok() && watcher.backlog().await.unwrap().is_idle() {
                return;
            }
            let left = watcher.backlog().await;
            assert!(
                self.clock.now() < deadline,
                "seed {seed}: never settled, {left:?}"
            );
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    fn count_by_key(&self, stream: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for (_, fields) in self.server.entries(stream) {
            let key = fields.iter().rev().find(|(name, _)| name == b"k").unwrap();
            *counts
                .entry(String::from_utf8(key.1.clone()).unwrap())
                .or_default() += 1;
        }
        counts
    }
}

#[tokio::test(start_paused = true)]
async fn no_schedule_of_faults_loses_an_entry_or_commits_one_twice() {
    let (mut starts, mut letters) = (0, 0);
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(seed);
        simulation.run().await;
        simulation.settle(seed).await;
        let outputs = simulation.count_by_key("{orders}:out");
        let dead = simulation.count_by_key("{orders}:mail:dead");
        for entry in 0..ENTRIES {
            let key = entry.to_string();
            let done = outputs.get(&key).copied().unwrap_or(0);
            let given_up = dead.get(&key).copied().unwrap_or(0);
            assert_eq!(
                done + given_up,
                1,
                "seed {seed}: entry {key}: {done} done, {given_up} dead"
            );
        }
        starts += *simulation.handler.starts.lock().unwrap();
        if simulation.limit == LIMITS[0] {
            assert!(
                dead.is_empty(),
                "seed {seed}: given up far below the limits: {dead:?}"
            );
        }
        letters += dead.len();
        for (_, worker) in simulation.workers {
            worker.abort();
        }
    }
    assert!(letters > 0, "limits of {} are reached", LIMITS[1]);
    crate::support::figures(&format!(
        "{SEEDS} schedules of {FAULTS} faults, {ENTRIES} entries each: {starts} starts, {letters} dead letters"
    ));
}
