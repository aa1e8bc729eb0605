//! The faults that only the server in memory has on demand.

use streamstage::streams::{Broker, Error, Refusal, RefusalReason, Settled, Unreachable};

use super::fixture::{
    A, DEAD, Fixture, RETRY, dead_letter, done, read, retry_now, settle, settle_one,
};
use super::memory_fixture::MemoryFixture;

fn is_lost<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Disconnected { .. }))
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_reply_was_lost_took_effect() {
    let fixture = MemoryFixture::start().await;
    let a = fixture.broker(A).await;
    fixture.add("n", "1").await;
    let delivery = read(&a, 1).await.remove(0);
    fixture.server.lose_replies(1);
    let retry = [settle(&delivery, retry_now(&delivery))];
    assert!(is_lost(&a.settle(&retry).await));
    a.connect().await.unwrap();
    assert_eq!(a.settle(&retry).await.unwrap(), [Settled::NotOurs]);
    assert_eq!(a.backlog().await.unwrap().delayed, 1);
}

#[tokio::test(start_paused = true)]
async fn dropped_connections_can_be_made_again_at_once() {
    let fixture = MemoryFixture::start().await;
    let a = fixture.broker(A).await;
    let long = std::time::Duration::from_secs(3600);
    let (read, ()) = tokio::join!(a.read(1, long), async {
        tokio::task::yield_now().await;
        fixture.server.drop_connections();
    });
    assert!(is_lost(&read));
    assert!(is_lost(&a.backlog().await));
    a.connect().await.unwrap();
    assert!(a.backlog().await.unwrap().is_idle());
}

#[tokio::test(start_paused = true)]
async fn nobody_connects_to_a_server_that_is_down() {
    let fixture = MemoryFixture::start().await;
    let a = fixture.broker(A).await;
    fixture.server.set_down(true);
    assert!(is_lost(&a.promote().await));
    let refused = Err(Error::Unreachable {
        address: "memory:0".to_owned(),
        reason: Unreachable::ConnectionRefused,
    });
    assert_eq!(a.connect().await, refused);
    fixture.server.set_down(false);
    a.connect().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn adds_to_one_key_are_refused_until_they_are_allowed_again() {
    let fixture = MemoryFixture::start().await;
    let a = fixture.broker(A).await;
    fixture.add_many(2).await;
    let deliveries = read(&a, 2).await;
    let reason = RefusalReason::PermissionDenied;
    fixture.server.refuse_adds(DEAD, Some(reason));
    let refusal = Settled::Refused(Refusal {
        key: DEAD.to_owned(),
        reason,
    });
    let batch = [
        settle(&deliveries[0], dead_letter()),
        settle(&deliveries[1], done()),
    ];
    assert_eq!(a.settle(&batch).await.unwrap(), [refusal, Settled::Applied]);
    fixture.server.refuse_adds(DEAD, None);
    let settled = settle_one(&a, &deliveries[0], dead_letter()).await;
    assert_eq!(settled, Settled::Applied);
}

#[tokio::test(start_paused = true)]
async fn a_promotion_that_is_refused_says_why() {
    let fixture = MemoryFixture::start().await;
    let a = fixture.broker(A).await;
    fixture.add("n", "1").await;
    let delivery = read(&a, 1).await.remove(0);
    settle_one(&a, &delivery, retry_now(&delivery)).await;
    let denied = Some(RefusalReason::PermissionDenied);
    fixture.server.refuse_adds(RETRY, denied);
    let promoted = a.promote().await;
    assert!(
        matches!(promoted, Err(Error::Denied { .. })),
        "{promoted:?}"
    );
    fixture.server.refuse_adds(RETRY, None);
    assert_eq!(a.promote().await.unwrap().moved, 1);
}
