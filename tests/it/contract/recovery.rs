//! Groups and streams that are missing, and sessions that end.

use std::time::Duration;

use streamstage::streams::{Broker, EntryId, Error, GroupCreation, LeaseState, StartFrom};

use super::fixture::{
    A, DELAYED, Fixture, RETRY, SOURCE, assert_nothing_to_read, done, pairs, read, read_one,
    settle, settle_one,
};

const EVERY: Duration = Duration::from_secs(5);
const VISIBILITY: Duration = Duration::from_secs(30);

fn group_missing() -> Error {
    Error::GroupMissing {
        stream: SOURCE.to_owned(),
        group: "mail".to_owned(),
    }
}

pub(crate) async fn a_group_is_created_where_the_stage_says<F: Fixture>(fixture: F) {
    let ids = fixture.add_many(2).await;
    let a = fixture.broker_with(A, |settings| settings.start_from = StartFrom::After(ids[0]));
    let opened = a.connect().await.unwrap();
    assert_eq!(opened.group_created_at, Some(ids[0]));
    assert_eq!(read_one(&a).await.entry.place.id, ids[1]);
    assert_eq!(a.connect().await.unwrap().group_created_at, None);
    assert_nothing_to_read(&a).await;
}

pub(crate) async fn a_group_that_may_not_be_created_is_waited_for<F: Fixture>(fixture: F) {
    let patient = fixture.broker_with(A, |settings| {
        settings.group_creation = GroupCreation::Never;
    });
    assert_eq!(patient.connect().await, Err(group_missing()));
    fixture.add("n", "1").await;
    assert_eq!(patient.connect().await, Err(group_missing()));
    fixture.broker("creator").await;
    patient.connect().await.unwrap();
    read_one(&patient).await;
}

pub(crate) async fn a_destroyed_group_is_created_at_its_position<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    let ids = fixture.add_many(4).await;
    let deliveries = read(&a, 3).await;
    settle_one(&a, &deliveries[0], done()).await;
    settle_one(&a, &deliveries[2], done()).await;
    a.report("{}", EVERY, VISIBILITY).await.unwrap();
    fixture.destroy_group(SOURCE).await;
    assert_eq!(a.read(5, EVERY).await, Err(group_missing()));

    let opened = a.connect().await.unwrap();
    assert_eq!(opened.group_created_at, Some(ids[1].before()));
    let again = read(&a, 3).await;
    let again = again
        .iter()
        .map(|delivery| delivery.entry.place.id)
        .collect::<Vec<_>>();
    assert_eq!(
        again,
        ids[1..],
        "what was held comes again, what was settled before it does not"
    );
}

pub(crate) async fn what_a_created_again_group_has_yet_to_deliver_is_not_stolen<F: Fixture>(
    fixture: F,
) {
    let a = fixture.broker(A).await;
    fixture.add_many(3).await;
    let held = read(&a, 3).await;
    settle_one(&a, &held[0], done()).await;
    a.report("{}", EVERY, VISIBILITY).await.unwrap();
    fixture.destroy_group(SOURCE).await;
    a.connect().await.unwrap();
    let places = held
        .iter()
        .map(|delivery| delivery.entry.place)
        .collect::<Vec<_>>();
    let (settled, undelivered) = (LeaseState::Settled, LeaseState::Undelivered);
    let states = a.renew(&places).await.unwrap();
    assert_eq!(
        states,
        [settled, undelivered, undelivered],
        "what was settled stays so"
    );
    read_one(&a).await;
    let states = a.renew(&places[1..]).await.unwrap();
    assert_eq!(states, [LeaseState::Held, undelivered]);
}

pub(crate) async fn a_stream_created_again_is_read_from_its_first_entry<F: Fixture>(fixture: F) {
    let a = fixture.broker_with(A, |settings| settings.start_from = StartFrom::End);
    a.connect().await.unwrap();
    fixture
        .add_as(SOURCE, "1000-0", &pairs(&[("n", "old")]))
        .await;
    read_one(&a).await;
    a.report("{}", EVERY, VISIBILITY).await.unwrap();
    fixture.delete(SOURCE).await;
    fixture
        .add_as(SOURCE, "10-0", &pairs(&[("n", "new")]))
        .await;
    assert_eq!(a.read(5, EVERY).await, Err(group_missing()));
    assert_eq!(
        a.connect().await.unwrap().group_created_at,
        Some(EntryId::ZERO)
    );
    assert_eq!(read_one(&a).await.entry.fields, pairs(&[("n", "new")]));
}

pub(crate) async fn a_key_of_another_type_ends_the_session_by_name<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.make_string(DELAYED).await;
    let wrong = |key: &str, expected| {
        Err(Error::WrongType {
            key: key.to_owned(),
            expected,
        })
    };
    assert_eq!(a.promote().await.map(|_| ()), wrong(DELAYED, "zset"));
    assert_eq!(a.connect().await.map(|_| ()), wrong(DELAYED, "zset"));
    fixture.delete(DELAYED).await;
    fixture.make_string(RETRY).await;
    assert_eq!(a.connect().await.map(|_| ()), wrong(RETRY, "stream"));
}

pub(crate) async fn every_call_that_meets_another_type_names_the_key<F: Fixture>(fixture: F) {
    let a = fixture.broker(A).await;
    fixture.add("n", "1").await;
    let delivery = read_one(&a).await;
    let wrong = |key: &str, expected| {
        Err(Error::WrongType {
            key: key.to_owned(),
            expected,
        })
    };
    fixture.make_string(DELAYED).await;
    assert_eq!(a.backlog().await.map(drop), wrong(DELAYED, "zset"));
    fixture.delete(DELAYED).await;
    fixture.make_string(SOURCE).await;
    let batch = [settle(&delivery, done())];
    assert_eq!(a.settle(&batch).await.map(drop), wrong(SOURCE, "stream"));
    for met in [
        a.backlog().await.map(drop),
        a.retire(false, EVERY).await.map(drop),
        a.read(1, EVERY).await.map(drop),
        a.renew(&[delivery.entry.place]).await.map(drop),
    ] {
        assert_eq!(met, wrong(SOURCE, "stream"));
    }
}

pub(crate) async fn without_a_connection_every_call_says_so<F: Fixture>(fixture: F) {
    let a = fixture.broker_with(A, |_| {});
    assert!(matches!(
        a.read(1, EVERY).await,
        Err(Error::Disconnected { .. })
    ));
    assert!(matches!(a.promote().await, Err(Error::Disconnected { .. })));
    assert!(matches!(a.settle(&[]).await, Ok(empty) if empty.is_empty()));
    assert!(matches!(a.backlog().await, Err(Error::Disconnected { .. })));
}

pub(crate) async fn a_server_that_answers_no_more_ends_the_session<F: Fixture>(fixture: F) {
    let short = Duration::from_millis(200);
    let a = fixture.broker_with(A, |settings| {
        settings.command_timeout = short;
        settings.connect_timeout = short;
    });
    a.connect().await.unwrap();
    fixture.set_frozen(true).await;
    let lost = |result: Result<(), Error>| matches!(result, Err(Error::Disconnected { .. }));
    assert!(lost(a.read(1, short).await.map(drop)));
    assert!(lost(a.promote().await.map(drop)), "at once, without asking");
    let refused = a.connect().await;
    assert!(matches!(
        refused,
        Err(Error::Unreachable { .. } | Error::Disconnected { .. })
    ));
    fixture.set_frozen(false).await;
    a.connect().await.unwrap();
    assert_nothing_to_read(&a).await;
}
