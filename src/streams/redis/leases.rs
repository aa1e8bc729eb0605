//! Leases: delivery counts of starts, and renewals.

use std::sync::LazyLock;

use redis::{Cmd, Value};

use super::groups::find_group;
use super::reply::{self, Odd};
use super::settle::write_lane;
use super::{RedisBroker, Script, lua};
use crate::streams::{EntryId, Error, Lane, LeaseState, Place, SetCount};

static SET_COUNTS: LazyLock<Script> = lua!("set_counts", after "ours");
static RENEW: LazyLock<Script> = lua!("renew", after "ours");

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
        let mut doubtful = Vec::new();
        for places in places.chunks(MAX_PLACES) {
            let arguments = |cmd: &mut Cmd| {
                self.write_batch(cmd, places);
                cmd.arg(places.len());
                for place in places {
                    write_lane(cmd, *place);
                }
            };
            for answer in self.lease_script(&RENEW, arguments).await? {
                let odd = |odd: Odd| odd.in_reply_to(RENEW.name());
                states.push(match reply::int(answer).map_err(odd)? {
                    1 => LeaseState::Held,
                    2 => LeaseState::Gone,
                    3 => LeaseState::Stolen,
                    4 => {
                        doubtful.push(states.len());
                        LeaseState::Stolen
                    }
                    _ => return Err(odd(Odd("1, 2, 3 or 4"))),
                });
            }
        }
        if !doubtful.is_empty() {
            let delivered = (
                self.last_delivered(self.source()).await?,
                self.last_delivered(self.retry()).await?,
            );
            for index in doubtful {
                if let (Some(place), Some(state)) = (places.get(index), states.get_mut(index)) {
                    *state = undelivered_or_settled(*place, delivered);
                }
            }
        }
        Ok(states)
    }

    /// The last id that the group got of a stream.
    async fn last_delivered(&self, stream: &str) -> Result<EntryId, Error> {
        let mut info = redis::cmd("XINFO");
        info.arg("GROUPS").arg(stream);
        let groups = self.run("XINFO", &info).await?;
        let odd = |odd: Odd| odd.in_reply_to("XINFO");
        let mut group = find_group(groups, self.group())
            .map_err(odd)?
            .unwrap_or_default();
        let last = reply::take(&mut group, "last-delivered-id");
        last.map_or(Ok(EntryId::ZERO), reply::id).map_err(odd)
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

/// An entry that is in its stream and pending nowhere: beyond the group's position it was not delivered (again) yet, before
/// it it was settled.
fn undelivered_or_settled(place: Place, (source, retry): (EntryId, EntryId)) -> LeaseState {
    let last = match place.lane {
        Lane::Source => source,
        Lane::Retry => retry,
    };
    if place.id > last {
        LeaseState::Undelivered
    } else {
        LeaseState::Stolen
    }
}
