//! Leases: delivery counts of starts, and renewals.

use std::sync::LazyLock;

use redis::{Cmd, Value};

use super::reply::{self, Odd};
use super::settle::write_lane;
use super::{RedisBroker, Script, lua};
use crate::streams::{Error, LeaseState, Place, SetCount};

static SET_COUNTS: LazyLock<Script> = lua!("set_counts", after "ours");
static RENEW: LazyLock<Script> = lua!("renew", after "ids", "ours");

/// The most entries of one call: only ids travel, so it may be more than a settlement's.
const MAX_PLACES: usize = 500;

impl RedisBroker {
    pub(super) async fn write_counts(&self, counts: &[SetCount]) -> Result<Vec<bool>, Error> {
        let mut ours = Vec::with_capacity(counts.len());
        for counts in counts.chunks(MAX_PLACES) {
            let places = counts.iter().map(|count| count.place).collect::<Vec<_>>();
            let arguments = |cmd: &mut Cmd| {
                self.write_batch(cmd, &places);
                cmd.arg(counts.len());
                for count in counts {
                    write_lane(cmd, count.place);
                    cmd.arg(count.count);
                }
            };
            for answer in self.lease_script(&SET_COUNTS, arguments).await? {
                ours.push(answer == Value::Int(1));
            }
        }
        Ok(ours)
    }

    pub(super) async fn renew_leases(&self, places: &[Place]) -> Result<Vec<LeaseState>, Error> {
        let mut states = Vec::with_capacity(places.len());
        for places in places.chunks(MAX_PLACES) {
            let arguments = |cmd: &mut Cmd| {
                self.write_batch(cmd, places);
                cmd.arg(places.len());
                for place in places {
                    write_lane(cmd, *place);
                }
            };
            for answer in self.lease_script(&RENEW, arguments).await? {
                let state = match reply::int(answer) {
                    Ok(1) => Ok(LeaseState::Held),
                    Ok(2) => Ok(LeaseState::Gone),
                    Ok(3) => Ok(LeaseState::Stolen),
                    Ok(4) => Ok(LeaseState::Undelivered),
                    Ok(5) => Ok(LeaseState::Trimmed),
                    Ok(6) => Ok(LeaseState::Settled),
                    Ok(_) | Err(_) => Err(Odd("a number from 1 to 6")),
                };
                states.push(state.map_err(|odd| odd.in_reply_to(RENEW.name()))?);
            }
        }
        Ok(states)
    }

    async fn lease_script(
        &self,
        script: &Script,
        arguments: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Result<Vec<Value>, Error> {
        let reply = self
            .script(script, &[self.source(), self.retry()], arguments)
            .await?;
        reply::items(reply).map_err(|odd| odd.in_reply_to(script.name()))
    }
}
