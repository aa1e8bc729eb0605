//! The loop: it performs the core's orders and tells it what came back. It decides nothing.
//!
//! Every order becomes a task; its result comes back as an event. No task is ever dropped before it is ready, so no read
//! leaves entries with nobody. What is decided, and why, is in `core/`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::core::{Arrival, Call, Core, Order};
use super::handler::{Handler, Start};
use super::observer::Observer;
use super::outcome::{Outcome, UnavailableReason};
use crate::clock::Clock;
use crate::shutdown::Shutdown;
use crate::streams::{
    Broker, Delivery, Error, IdempotencyKey, LeaseState, Opened, Place, Promoted, ReclaimCursor,
    Reclaimed, Reported, SetCount, Settled,
};
use crate::worker_config::WorkerConfig;

/// Consumers whose report is older than ten visibility timeouts are retired, after an hour at the latest.
const RETIRE_AFTER_TIMEOUTS: u32 = 10;
const RETIRE_AFTER_AT_MOST: Duration = Duration::from_secs(3600);

/// What an order brought.
enum Event {
    Connected(Result<Opened, Error>),
    Arrived {
        retry_only: bool,
        result: Result<Arrival, Error>,
    },
    Unblocked,
    Reclaimed {
        result: Result<(Reclaimed, Vec<bool>), Error>,
        sent_at: Duration,
    },
    Counted {
        sent: Vec<SetCount>,
        result: Result<Vec<bool>, Error>,
    },
    Answered {
        place: Place,
        run: u64,
        outcome: Outcome,
    },
    Settled {
        sent: Vec<Place>,
        result: Result<Vec<Settled>, Error>,
        sent_at: Duration,
    },
    Renewed {
        places: Vec<Place>,
        result: Result<Vec<LeaseState>, Error>,
        sent_at: Duration,
    },
    Promoted(Result<Promoted, Error>),
    Reported(Result<Reported, Error>),
    Retired {
        own: bool,
        result: Result<u64, Error>,
    },
    Probed(Result<(), UnavailableReason>),
}

/// A task of the engine panicked; what is wrong is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a part of the engine failed: this is a bug, and the log tells more")]
pub struct Broken;

/// One worker at work.
pub struct Worker<B, H> {
    broker: Arc<B>,
    handler: Arc<H>,
    config: Arc<WorkerConfig>,
    core: Core,
    clock: Clock,
    observer: Observer,
    tasks: JoinSet<(u64, Event)>,
    running: HashMap<u64, CancellationToken>,
    /// The order to stop at once was carried out.
    aborting: bool,
    /// A task of the engine panicked.
    broken: bool,
}

impl<B: Broker, H: Handler> Worker<B, H> {
    /// A worker that begins with the next [`Worker::run`].
    pub fn new(
        (broker, handler): (Arc<B>, Arc<H>),
        config: Arc<WorkerConfig>,
        core: Core,
        clock: Clock,
        observer: Observer,
    ) -> Self {
        Self {
            broker,
            handler,
            config,
            core,
            clock,
            observer,
            tasks: JoinSet::new(),
            running: HashMap::new(),
            aborting: false,
            broken: false,
        }
    }

    /// Works until the order to stop was carried out; gives the core back for its counts.
    ///
    /// # Errors
    /// [`Broken`] if a task of the engine panicked: then it drained, at once.
    pub async fn run(mut self, stop: &Shutdown) -> Result<Core, Broken> {
        loop {
            let now = self.clock.now();
            for order in self.core.orders(now) {
                self.perform(order, now);
            }
            self.observer.observe(&mut self.core, now);
            if self.core.is_finished() {
                break;
            }
            let wake_at = self.core.wake_at(now);
            tokio::select! {
                Some(done) = self.tasks.join_next() => self.tell(done),
                () = self.clock.until(wake_at) => {}
                () = stop.abort.cancelled(), if !self.aborting => self.stop_now(true),
                () = stop.drain.cancelled(), if !self.core.is_draining() => self.stop_now(false),
            }
            // What else is ready now is told before anything is decided: batches grow by themselves.
            while let Some(done) = self.tasks.try_join_next() {
                self.tell(done);
            }
        }
        self.handler.stop().await;
        if self.broken {
            Err(Broken)
        } else {
            Ok(self.core)
        }
    }

    fn stop_now(&mut self, at_once: bool) {
        self.aborting |= at_once;
        self.core.drain(at_once, self.clock.now());
    }

    /// Carries one order out, in a task of its own.
    fn perform(&mut self, order: Order, now: Duration) {
        let block = super::core::block_timeout(&self.config);
        match order {
            Order::ReadRetry { count } => self.read(count, None, now),
            Order::Read { count } => self.read(count, Some(block), now),
            Order::Reclaim { cursor, limit } => self.reclaim(cursor, limit, now),
            Order::Report => self.report(now),
            Order::Retire { own } => self.retire(own),
            Order::Call(call) => self.call(call),
            Order::Cancel(run) => {
                if let Some(cancel) = self.running.get(&run) {
                    cancel.cancel();
                }
            }
            Order::Probe => {
                let handler = Arc::clone(&self.handler);
                self.spawn(async move { Event::Probed(handler.probe().await) });
            }
            Order::Connect => {
                self.ask(move |broker| async move { Event::Connected(broker.connect().await) });
            }
            // If the session is over, so is the read.
            Order::Unblock => self.ask(move |broker| async move {
                broker.unblock().await.ok();
                Event::Unblocked
            }),
            Order::SetCounts(sent) => self.ask(move |broker| async move {
                let result = broker.set_counts(&sent).await;
                Event::Counted { sent, result }
            }),
            Order::Settle(batch) => self.ask(move |broker| async move {
                let result = broker.settle(&batch).await;
                let sent = batch.iter().map(|settle| settle.entry.place).collect();
                Event::Settled {
                    sent,
                    result,
                    sent_at: now,
                }
            }),
            Order::Renew(places) => self.ask(move |broker| async move {
                let result = broker.renew(&places).await;
                Event::Renewed {
                    places,
                    result,
                    sent_at: now,
                }
            }),
            Order::Promote => {
                self.ask(move |broker| async move { Event::Promoted(broker.promote().await) });
            }
        }
    }

    fn spawn(&mut self, task: impl Future<Output = Event> + Send + 'static) {
        let session = self.core.session_number();
        self.tasks.spawn(async move { (session, task.await) });
    }

    /// One exchange with the broker, in a task of its own.
    fn ask<F>(&mut self, exchange: impl FnOnce(Arc<B>) -> F)
    where
        F: Future<Output = Event> + Send + 'static,
    {
        let task = exchange(Arc::clone(&self.broker));
        self.spawn(task);
    }

    fn reclaim(&mut self, cursor: ReclaimCursor, limit: usize, sent_at: Duration) {
        let broker = Arc::clone(&self.broker);
        let idle = self.config.delivery.visibility_timeout;
        let keys = self.key_maker();
        self.spawn(async move {
            let result = match broker.reclaim(&cursor, idle, limit).await {
                Ok(page) => {
                    let known = known(&*broker, &keys(&page.claimed)).await;
                    Ok((page, known))
                }
                Err(error) => Err(error),
            };
            Event::Reclaimed { result, sent_at }
        });
    }

    fn retire(&mut self, own: bool) {
        let broker = Arc::clone(&self.broker);
        let visibility = self.config.delivery.visibility_timeout;
        let older_than = (visibility * RETIRE_AFTER_TIMEOUTS).min(RETIRE_AFTER_AT_MOST);
        self.spawn(async move {
            Event::Retired {
                own,
                result: broker.retire(own, older_than).await,
            }
        });
    }

    /// A read, and the ledger's word on what it brought; `block` = both streams, waiting so long.
    ///
    /// What it brings is leased from its sending: nobody knows how long the reply was on its way.
    fn read(&mut self, count: usize, block: Option<Duration>, sent_at: Duration) {
        let broker = Arc::clone(&self.broker);
        let keys = self.key_maker();
        self.spawn(async move {
            let read = match block {
                None => broker.read_retry(count).await,
                Some(block) => broker.read(count, block).await,
            };
            let result = match read {
                Ok(deliveries) => {
                    let known = known(&*broker, &keys(&deliveries)).await;
                    Ok(Arrival {
                        deliveries,
                        known,
                        sent_at,
                    })
                }
                Err(error) => Err(error),
            };
            Event::Arrived {
                retry_only: block.is_none(),
                result,
            }
        });
    }

    /// How the keys of new entries are made, for a task of its own.
    fn key_maker(&self) -> impl Fn(&[Delivery]) -> Vec<IdempotencyKey> + Send + 'static {
        let config = Arc::clone(&self.config);
        move |deliveries| super::core::keys_to_check(&config, deliveries)
    }

    fn report(&mut self, now: Duration) {
        let broker = Arc::clone(&self.broker);
        let body = self.core.report(now).render();
        let visibility = self.config.delivery.visibility_timeout;
        self.spawn(async move {
            let every = super::core::report_every(visibility);
            Event::Reported(broker.report(&body, every, visibility).await)
        });
    }

    fn call(&mut self, call: Call) {
        let (place, run) = (call.entry.place, call.run);
        let timeout = self.config.delivery.handler_timeout;
        let start = Start {
            deadline: self.clock.wall(self.clock.now() + timeout),
            timeout,
            entry: call.entry,
            key: call.key,
            attempt: call.attempt,
            deliveries: call.deliveries,
            fresh: call.fresh,
        };
        let cancel = CancellationToken::new();
        self.running.insert(run, cancel.clone());
        let handler = Arc::clone(&self.handler);
        self.spawn(async move {
            // A panic of an embedded handler is a crash of its entry, not of the worker.
            let outcome = super::handler::caught(handler.call(start, cancel)).await;
            Event::Answered {
                place,
                run,
                outcome,
            }
        });
    }

    /// Tells the core what came back.
    fn tell(&mut self, done: Result<(u64, Event), tokio::task::JoinError>) {
        let now = self.clock.now();
        let (session, event) = match done {
            Ok(told) => told,
            Err(error) => {
                // Orders are never aborted: only a panic gets here, and a half-working worker must not go on.
                tracing::error!(%error, "a task of the engine panicked: draining");
                self.broken = true;
                self.core.drain(true, now);
                return;
            }
        };
        self.core.hear(session);
        match event {
            Event::Connected(result) => self.core.connected(result, now),
            Event::Arrived { retry_only, result } => match result {
                Ok(arrival) => self.core.arrived(arrival, retry_only, now),
                Err(error) => self.core.read_failed(&error, now),
            },
            Event::Unblocked => self.core.unblocked(now),
            Event::Reclaimed { result, sent_at } => match result {
                Ok((page, known)) => self.core.reclaimed((page, known), sent_at, now),
                Err(error) => self.core.reclaim_failed(&error, now),
            },
            Event::Counted { sent, result } => self.core.counted(&sent, result, now),
            Event::Answered {
                place,
                run,
                outcome,
            } => {
                self.running.remove(&run);
                self.core.answered(place, run, outcome, now);
            }
            Event::Settled {
                sent,
                result,
                sent_at,
            } => {
                self.observer
                    .committed(sent.len(), now.saturating_sub(sent_at));
                self.core.settled(&sent, result, now);
            }
            Event::Renewed {
                places,
                result,
                sent_at,
            } => {
                self.core.renewed(&places, result, sent_at, now);
            }
            Event::Promoted(result) => self.core.promoted(result, now),
            Event::Reported(result) => self.core.reported(result, now),
            Event::Retired { own, result } => self.core.retired(own, result, now),
            Event::Probed(result) => self.core.probed(result, now),
        }
    }
}

/// The ledger's word on new entries. If it cannot be had they are taken in all the same: the commit asks again.
async fn known<B: Broker>(broker: &B, keys: &[IdempotencyKey]) -> Vec<bool> {
    if keys.is_empty() {
        return Vec::new();
    }
    broker.known(keys).await.unwrap_or_default()
}
