//! What only a real server answers: error codes, logins, vanished keys.

use std::time::Duration;

use streamstage::streams::{Broker, Credentials, Error, Opened, Unreachable};

use super::fixture::{A, Fixture, SOURCE, dead_letter, done, eventually, read, settle};
use super::redis_fixture::RedisFixture;

const LONG: Duration = Duration::from_secs(30);

fn login(username: Option<&str>, password: &str) -> Credentials {
    Credentials::Inline {
        username: username.map(str::to_owned),
        password: password.to_owned(),
    }
}

async fn connect_as(fixture: &RedisFixture, credentials: Credentials) -> Result<Opened, Error> {
    let broker = fixture.broker_with(A, |settings| settings.credentials = credentials);
    broker.connect().await
}

#[tokio::test]
async fn passwords_pass_as_they_are_and_wrong_ones_are_told_from_other_errors() {
    let fixture = RedisFixture::start().await;
    let password = "p@ss:w/rd#%+ü";
    fixture
        .server
        .run(&format!("ACL SETUSER worker on >{password} ~* +@all"))
        .await;
    fixture
        .server
        .run(&format!("CONFIG SET requirepass {password}"))
        .await;
    let refused = Error::AuthenticationFailed {
        address: fixture.server.address(),
    };
    connect_as(&fixture, login(Some("worker"), password))
        .await
        .unwrap();
    connect_as(&fixture, login(None, password)).await.unwrap();
    let wrong = [
        Credentials::None,
        login(None, "wrong"),
        login(Some("nobody"), password),
    ];
    for credentials in wrong {
        assert_eq!(
            connect_as(&fixture, credentials).await,
            Err(refused.clone())
        );
    }
    assert!(!format!("{refused:?}{refused}").contains(password));
}

#[tokio::test]
async fn credential_files_are_read_again_at_every_connect() {
    let fixture = RedisFixture::start().await;
    let file = std::env::temp_dir().join(format!("password-{}", fixture.server.address()));
    std::fs::write(&file, "old\n").unwrap();
    let broker = fixture.broker_with(A, |settings| {
        settings.credentials = Credentials::Files {
            username: None,
            password: file.clone(),
        };
    });
    fixture.server.run("CONFIG SET requirepass old").await;
    broker.connect().await.unwrap();
    fixture.server.run("CONFIG SET requirepass new").await;
    assert!(matches!(
        broker.connect().await,
        Err(Error::AuthenticationFailed { .. })
    ));
    std::fs::write(&file, "new\r\n").unwrap();
    broker.connect().await.unwrap();
    std::fs::remove_file(&file).unwrap();
}

#[tokio::test]
async fn nobody_listening_is_not_a_name_that_does_not_resolve() {
    let fixture = RedisFixture::start().await;
    for (address, reason) in [
        ("127.0.0.1:1", Unreachable::ConnectionRefused),
        ("no-such-host.invalid:6379", Unreachable::DnsFailure),
        ("no-port", Unreachable::DnsFailure),
    ] {
        let broker = fixture.broker_with(A, |settings| address.clone_into(&mut settings.address));
        let address = address.to_owned();
        assert_eq!(
            broker.connect().await,
            Err(Error::Unreachable { address, reason })
        );
    }
}

/// Every way in which a stream can vanish under a parked reader.
#[tokio::test]
async fn a_parked_read_tells_that_its_group_is_missing_however_it_vanished() {
    for vanish in [
        "DEL orders",
        "RENAME orders other",
        "FLUSHALL",
        "XGROUP DESTROY orders mail",
    ] {
        let fixture = RedisFixture::start().await;
        let a = fixture.broker(A).await;
        let (end, ()) = tokio::join!(end_of_reads(&a), async {
            blocked_reader(&fixture).await;
            fixture.server.run(vanish).await;
        });
        assert!(matches!(end, Error::GroupMissing { .. }), "{vanish}: {end}");
        assert!(
            a.connect().await.unwrap().group_created_at.is_some(),
            "{vanish}"
        );
        fixture.add("n", "1").await;
        read_again(&a, vanish).await;
    }
}

#[tokio::test]
async fn a_stream_overwritten_under_a_parked_reader_is_named_at_the_next_connect() {
    let fixture = RedisFixture::start().await;
    let a = fixture.broker(A).await;
    let (end, ()) = tokio::join!(end_of_reads(&a), async {
        blocked_reader(&fixture).await;
        fixture.server.run("SET orders text").await;
    });
    let expected = Error::WrongType {
        key: SOURCE.to_owned(),
        expected: "stream",
    };
    assert!(
        matches!(end, Error::GroupMissing { .. }) || end == expected,
        "{end}"
    );
    assert_eq!(a.connect().await, Err(expected));
}

#[tokio::test]
async fn a_server_that_dies_ends_every_call_and_a_parked_read() {
    let fixture = RedisFixture::start().await;
    let a = fixture.broker(A).await;
    let (read, _) = tokio::join!(a.read(5, LONG), async {
        blocked_reader(&fixture).await;
        let kill = fixture
            .server
            .run("CLIENT KILL TYPE normal SKIPME yes")
            .await;
        eventually("the committer's end is seen", || async {
            matches!(a.backlog().await, Err(Error::Disconnected { .. }))
        })
        .await;
        kill
    });
    assert!(matches!(read, Err(Error::Disconnected { .. })), "{read:?}");
    a.connect().await.unwrap();
    assert!(a.backlog().await.unwrap().is_idle());
}

#[tokio::test]
async fn scripts_are_taught_again_after_the_server_forgot_them() {
    let fixture = RedisFixture::start().await;
    let a = fixture.broker(A).await;
    a.promote().await.unwrap();
    fixture.server.run("SCRIPT FLUSH").await;
    a.promote().await.unwrap();
}

#[tokio::test]
async fn a_replica_is_read_only() {
    let fixture = RedisFixture::start().await;
    let a = fixture.broker(A).await;
    fixture.add_many(2).await;
    let deliveries = read(&a, 2).await;
    fixture.server.run("REPLICAOF 127.0.0.1 1").await;
    let plain = a.settle(&[settle(&deliveries[0], done())]).await;
    let scripted = a.settle(&[settle(&deliveries[1], dead_letter())]).await;
    assert_eq!(
        (plain, scripted),
        (Err(Error::ReadOnly), Err(Error::ReadOnly))
    );
}

#[tokio::test]
async fn a_limited_server_that_evicts_is_called_unsafe() {
    let fixture = RedisFixture::start().await;
    fixture.server.run("CONFIG SET maxmemory 100mb").await;
    fixture
        .server
        .run("CONFIG SET maxmemory-policy allkeys-lru")
        .await;
    let opened = fixture.broker_with(A, |_| {}).connect().await.unwrap();
    assert_eq!(opened.unsafe_eviction.as_deref(), Some("allkeys-lru"));
    assert!(opened.server.starts_with("redis ") || opened.server.starts_with("valkey "));
}

/// Reads until an error comes: before Redis 7 a reader that waits for a key is not told when it goes.
async fn end_of_reads(broker: &impl Broker) -> Error {
    loop {
        match broker.read(5, Duration::from_millis(500)).await {
            Ok(read) => assert_eq!(read, []),
            Err(error) => return error,
        }
    }
}

async fn blocked_reader(fixture: &RedisFixture) {
    eventually("a reader is parked", || async {
        let info = fixture.server.run("INFO clients").await;
        redis::from_redis_value::<String>(info)
            .unwrap()
            .contains("blocked_clients:1")
    })
    .await;
}

async fn read_again(broker: &impl Broker, context: &str) {
    let read = broker.read(5, LONG).await.unwrap();
    assert_eq!(read.len(), 1, "{context}");
}

#[tokio::test]
async fn an_attempt_to_connect_is_limited_as_a_whole() {
    let fixture = RedisFixture::start().await;
    let a = fixture.broker_with(A, |settings| {
        settings.connect_timeout = Duration::from_millis(300);
        settings.command_timeout = LONG;
    });
    fixture.server.run("CLIENT PAUSE 60000 ALL").await;
    let unreachable = Err(Error::Unreachable {
        address: fixture.server.address(),
        reason: Unreachable::Timeout,
    });
    let attempt = tokio::time::timeout(LONG / 2, a.connect()).await;
    assert_eq!(attempt, Ok(unreachable));
}
