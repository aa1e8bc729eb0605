//! The order to stop: the first SIGTERM, SIGINT or SIGHUP drains, the second aborts.
//!
//! It only tells; what draining means is up to whoever watches.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The numbers of the signals, for exit codes.
const SIGHUP: u8 = 1;
const SIGINT: u8 = 2;
const SIGTERM: u8 = 15;

/// What a shell adds to the number of the signal that ended a process.
const SIGNAL_BASE: u8 = 128;

/// The order to stop, shared by all who must hear it.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    /// Cancelled by the first signal: take nothing new, finish what runs.
    pub drain: CancellationToken,
    /// Cancelled by the second signal: end now.
    pub abort: CancellationToken,
    last_signal: Arc<AtomicU8>,
}

impl Shutdown {
    /// An order that listens to no signal: it comes from [`Shutdown::drain`] and [`Shutdown::abort`] alone.
    pub fn manual() -> Self {
        Self::default()
    }

    /// An order that SIGTERM, SIGINT and SIGHUP (a terminal that closes) give, from now until this process ends. Needs a tokio runtime.
    pub fn on_signals() -> io::Result<Self> {
        let shutdown = Self::default();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        let heard = shutdown.clone();
        tokio::spawn(async move {
            loop {
                let came = tokio::select! {
                    came = terminate.recv() => came.map(|()| SIGTERM),
                    came = interrupt.recv() => came.map(|()| SIGINT),
                    came = hang_up.recv() => came.map(|()| SIGHUP),
                };
                match came {
                    Some(number) => heard.hear(number),
                    None => return,
                }
            }
        });
        Ok(shutdown)
    }

    fn hear(&self, number: u8) {
        self.last_signal.store(number, Ordering::Release);
        // A terminal that closes may say so twice: that is one wish, and no hurry.
        if self.drain.is_cancelled() && number != SIGHUP {
            self.abort.cancel();
        } else {
            self.drain.cancel();
        }
    }

    /// 128 + the signal that aborted; `None` while nothing was aborted by a signal.
    pub fn exit_code(&self) -> Option<u8> {
        let number = self.last_signal.load(Ordering::Acquire);
        (self.abort.is_cancelled() && number > 0).then_some(SIGNAL_BASE + number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_signal_drains_and_the_second_aborts_with_its_own_code() {
        let shutdown = Shutdown::manual();
        shutdown.hear(SIGTERM);
        assert!(shutdown.drain.is_cancelled());
        assert!(!shutdown.abort.is_cancelled());
        assert_eq!(shutdown.exit_code(), None);
        shutdown.hear(SIGINT);
        assert!(shutdown.abort.is_cancelled());
        assert_eq!(shutdown.exit_code(), Some(130));
    }

    #[test]
    fn an_abort_that_no_signal_gave_has_no_code() {
        let shutdown = Shutdown::manual();
        shutdown.abort.cancel();
        assert_eq!(shutdown.exit_code(), None);
    }

    #[tokio::test]
    async fn a_real_signal_is_heard() {
        use rustix::process::{Signal, getpid, kill_process};
        for signal in [Signal::TERM, Signal::HUP] {
            let shutdown = Shutdown::on_signals().unwrap();
            kill_process(getpid(), signal).unwrap();
            shutdown.drain.cancelled().await;
            assert!(!shutdown.abort.is_cancelled());
        }
    }
}
