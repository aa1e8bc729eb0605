//! What a user may not do: told at connect where safety rests on it, else refused to who needs it.

use std::time::Duration;

use streamstage::streams::redis::RedisBroker;
use streamstage::streams::{
    Broker, Credentials, Error, Fields, ReclaimCursor, Refusal, RefusalReason, Settled,
};

use super::fixture::{
    A, DEAD, Fixture, RETRY, commit, dead_letter, eventually, pairs, read, read_one, retry_now,
    settle, settle_one,
};
use super::redis_fixture::RedisFixture;

const LONG: Duration = Duration::from_secs(30);

/// The broker of a user with these rules; not connected yet.
async fn user(fixture: &RedisFixture, rules: &str) -> RedisBroker {
    permit(fixture, &format!("on >pw {rules}")).await;
    fixture.broker_with(A, |settings| {
        settings.credentials = Credentials::Inline {
            username: Some("worker".to_owned()),
            password: "pw".to_owned(),
        };
    })
}

async fn permit(fixture: &RedisFixture, rules: &str) {
    let command = format!("ACL SETUSER worker {rules}");
    fixture.server.run(&command).await;
}

fn denied(key: &str) -> Settled {
    Settled::Refused(Refusal {
        key: key.to_owned(),
        reason: RefusalReason::PermissionDenied,
    })
}

#[tokio::test]
async fn a_user_without_info_works_and_is_told_what_was_not_checked() {
    let fixture = RedisFixture::start().await;
    let broker = user(&fixture, "~* +@all -info").await;
    let opened = broker.connect().await.unwrap();
    assert!(
        opened
            .warnings
            .iter()
            .any(|warning| warning.contains("INFO")),
        "{opened:?}"
    );
}

#[tokio::test]
async fn who_may_not_claim_or_remove_is_told_so_before_anything_is_added() {
    let fixture = RedisFixture::start().await;
    let broker = user(&fixture, "~* +@all").await;
    broker.connect().await.unwrap();
    for full in [false, true] {
        fixture.set_full(full).await;
        for command in ["xpending", "xclaim", "xack", "xdel", "zrem"] {
            permit(&fixture, &format!("+@all -{command}")).await;
            let error = broker.connect().await.unwrap_err();
            assert!(matches!(error, Error::Denied { .. }), "{command}: {error}");
            assert!(error.to_string().contains(command), "{command}: {error}");
        }
        permit(&fixture, "+@all").await;
        broker.connect().await.unwrap();
    }
}

#[tokio::test]
async fn looking_for_permissions_leaves_nothing_behind() {
    let fixture = RedisFixture::start().await;
    let broker = user(&fixture, "~* +@all").await;
    fixture.delay_raw(b"\xc1").await;
    fixture.add("n", "1").await;
    fixture.add_as(RETRY, "*", &pairs(&[("n", "2")])).await;
    broker.connect().await.unwrap();
    let backlog = broker.backlog().await.unwrap();
    let numbers = (backlog.undelivered, backlog.pending, backlog.delayed);
    assert_eq!(numbers, (Some(2), 0, 1));
}

#[tokio::test]
async fn what_the_user_may_not_do_is_named_as_far_as_the_server_says() {
    let fixture = RedisFixture::start().await;
    let broker = user(&fixture, "~* +@all").await;
    broker.connect().await.unwrap();
    permit(&fixture, "-xpending").await;
    fixture.add("n", "1").await;
    read(&broker, 1).await;
    let reclaim = broker
        .reclaim(&ReclaimCursor::default(), LONG, 5)
        .await
        .unwrap_err();
    assert!(matches!(reclaim, Error::Denied { .. }), "{reclaim}");
    assert!(reclaim.to_string().contains("reclaim"), "{reclaim}");
    permit(&fixture, "-zcard").await;
    let backlog = broker.backlog().await.unwrap_err();
    assert!(backlog.to_string().contains("'zcard'"), "{backlog}");
}

#[tokio::test]
async fn a_stream_that_the_user_may_not_add_to_refuses_only_who_needs_it() {
    let fixture = RedisFixture::start().await;
    let broker = user(&fixture, "~{orders}:mail:* ~orders +@all").await;
    broker.connect().await.unwrap();
    fixture.add_many(3).await;
    let deliveries = read(&broker, 3).await;
    let batch = [
        settle(&deliveries[0], commit(&[pairs(&[("o", "1")])], Some(1))),
        settle(&deliveries[1], commit(&[], Some(2))),
        settle(&deliveries[2], dead_letter()),
    ];
    let settled = broker.settle(&batch).await.unwrap();
    let expected = [denied("sent"), Settled::Applied, Settled::Applied];
    assert_eq!(settled, expected);
    assert_eq!(fixture.entries(DEAD).await.len(), 1);
}

#[tokio::test]
async fn a_wide_letter_is_not_added_where_it_could_not_be_acknowledged() {
    let fixture = RedisFixture::start().await;
    let broker = user(&fixture, "~* +@all").await;
    broker.connect().await.unwrap();
    let wide: Fields = vec![(b"n".to_vec(), b"1".to_vec()); 3600];
    fixture.add_as(RETRY, "*", &wide).await;
    let delivery = read_one(&broker).await;
    for command in ["xack", "xdel", "xpending"] {
        permit(&fixture, &format!("+@all -{command}")).await;
        let settled = settle_one(&broker, &delivery, dead_letter()).await;
        assert!(
            matches!(settled, Settled::Refused(_)),
            "{command}: {settled:?}"
        );
        assert_eq!(fixture.entries(DEAD).await, [], "{command}");
    }
    permit(&fixture, "+@all").await;
    let settled = settle_one(&broker, &delivery, dead_letter()).await;
    assert_eq!(settled, Settled::Applied);
    assert_eq!(fixture.entries(DEAD).await.len(), 1);
}

#[tokio::test]
async fn a_wide_letter_is_taken_back_where_it_cannot_be_confirmed() {
    let fixture = RedisFixture::start().await;
    let broker = user(&fixture, "~* +@all").await;
    broker.connect().await.unwrap();
    let wide: Fields = vec![(b"n".to_vec(), b"1".to_vec()); 3600];
    fixture.add("n", "1").await;
    fixture.add_as("orders", "*", &wide).await;
    let delivery = read(&broker, 2).await.remove(1);
    permit(&fixture, "-eval -evalsha").await;
    let settled = settle_one(&broker, &delivery, dead_letter()).await;
    assert_eq!(settled, denied(DEAD));
    assert_eq!(fixture.entries(DEAD).await, []);
    assert_eq!(broker.backlog().await.unwrap().pending, 2);
}

#[tokio::test]
async fn a_promotion_that_may_not_add_says_so() {
    let fixture = RedisFixture::start().await;
    let broker = user(&fixture, "~* +@all").await;
    broker.connect().await.unwrap();
    fixture.add("n", "1").await;
    let delivery = read_one(&broker).await;
    settle_one(&broker, &delivery, retry_now(&delivery)).await;
    permit(&fixture, "-xadd").await;
    let promoted = broker.promote().await;
    assert!(
        matches!(promoted, Err(Error::Denied { .. })),
        "{promoted:?}"
    );
    permit(&fixture, "+@all").await;
    assert_eq!(broker.promote().await.unwrap().moved, 1);
}

#[tokio::test]
async fn who_may_not_unblock_is_told_and_waits_for_the_block_timeout() {
    for lacking in ["-client|unblock", "-client|id"] {
        let fixture = RedisFixture::start().await;
        if !fixture.counts_added().await {
            return;
        }
        let broker = user(&fixture, &format!("~* +@all {lacking}")).await;
        let opened = broker.connect().await.unwrap();
        let is_told = opened.warnings.iter().any(|text| text.contains("UNBLOCK"));
        assert!(is_told, "{lacking}: {opened:?}");
        let block = Duration::from_millis(300);
        let (read, ()) = tokio::join!(broker.read(1, block), async {
            eventually("the read is parked", || async {
                let info = fixture.server.run("INFO clients").await;
                let info = redis::from_redis_value::<String>(info).unwrap();
                info.contains("blocked_clients:1")
            })
            .await;
            broker.unblock().await.unwrap();
        });
        assert_eq!(read.unwrap(), [], "{lacking}");
        broker.backlog().await.unwrap();
    }
}
