//! What only a real server answers: error codes, logins, vanished keys.

use std::time::Duration;

use streamstage::streams::redis::dead_letters::DeadLetters;
use streamstage::streams::redis::{RedisBroker, Target};
use streamstage::streams::{
    Broker, Credentials, Error, Meta, Opened, Refusal, RefusalReason, Settled, StreamKey,
    Unreachable,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::fixture::{
    A, DEAD, Fixture, RETRY, SOURCE, commit, dead_letter, done, eventually, pairs, read, settings,
    settle,
};
use super::redis_fixture::RedisFixture;
use super::server::Server;

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
    let address = fixture.server.address();
    let failed = |given| {
        let address = address.clone();
        Err(Error::AuthenticationFailed { address, given })
    };
    connect_as(&fixture, login(Some("worker"), password))
        .await
        .unwrap();
    connect_as(&fixture, login(None, password)).await.unwrap();
    for wrong in [login(None, "wrong"), login(Some("nobody"), password)] {
        let refused = connect_as(&fixture, wrong).await;
        assert_eq!(refused, failed(true));
        let refused = refused.unwrap_err();
        assert!(!format!("{refused:?}{refused}").contains(password));
        let text = format!("{address} refused the user or the password");
        assert_eq!(refused.to_string(), text);
    }
    for database in [0, 3] {
        let nobody = fixture.broker_with(A, |settings| settings.database = database);
        let unasked = nobody.connect().await;
        assert_eq!(unasked, failed(false), "{database}");
        let text = format!("{address} wants a password, and none was given");
        assert_eq!(unasked.unwrap_err().to_string(), text);
    }
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
async fn credentials_that_cannot_be_read_are_named_by_their_file() {
    let fixture = RedisFixture::start().await;
    let missing = Credentials::Files {
        username: None,
        password: "/no-such-directory/password".into(),
    };
    let error = connect_as(&fixture, missing).await.unwrap_err();
    let is_named = matches!(error, Error::CredentialsUnreadable { .. });
    assert!(is_named && error.to_string().contains("/no-such-directory/password"));
}

#[tokio::test]
async fn a_server_that_takes_no_more_clients_is_waited_for() {
    let fixture = RedisFixture::start().await;
    fixture.server.run("CONFIG SET maxclients 1").await;
    for credentials in [Credentials::None, login(None, "unneeded")] {
        // Its answer may be lost with the connection, which it closes at once.
        eventually("the server's reason comes through", || async {
            let error = connect_as(&fixture, credentials.clone()).await.unwrap_err();
            let is_lost = matches!(
                error,
                Error::Disconnected { .. } | Error::Unreachable { .. }
            );
            assert!(is_lost || matches!(error, Error::Loading { .. }), "{error}");
            !is_lost
        })
        .await;
    }
}

#[tokio::test]
async fn a_database_is_selected_and_one_out_of_range_is_no_wrong_password() {
    let fixture = RedisFixture::start().await;
    let in_database = |database| fixture.broker_with(A, |settings| settings.database = database);
    let other = in_database(3);
    other.connect().await.unwrap();
    other.add(&pairs(&[("n", "1")])).await.unwrap();
    assert_eq!(fixture.entries(SOURCE).await, []);
    let error = in_database(99).connect().await.unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
    let address = fixture.server.address();
    let expected = format!("{address} has no database 99: lower `redis.database`");
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_server_of_another_kind_is_called_so() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n";
            stream.write_all(answer).await.unwrap();
            let mut sent = [0; 1024];
            while stream.read(&mut sent).await.is_ok_and(|count| count > 0) {}
        }
    });
    for (credentials, database) in [
        (Credentials::None, 0),
        (Credentials::None, 1),
        (login(None, "s3cret"), 0),
    ] {
        let mut settings = settings(&address, A);
        (settings.credentials, settings.database) = (credentials, database);
        let error = RedisBroker::new(settings).connect().await.unwrap_err();
        assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
        let expected = format!("{address} does not speak Redis's protocol");
        assert_eq!(error.to_string(), expected);
    }
}

#[tokio::test]
async fn keys_in_several_slots_of_a_cluster_refuse_the_entry_and_not_the_session() {
    let server = Server::with(&["--cluster-enabled", "yes"]).await;
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("ADDSLOTS").arg((0..16_384).collect::<Vec<u16>>());
    server.query::<()>(&slots).await;
    let fixture = RedisFixture { server };
    eventually("the cluster is whole", || async {
        let info = fixture.server.run("CLUSTER INFO").await;
        let info = redis::from_redis_value::<String>(info).unwrap();
        info.contains("cluster_state:ok")
    })
    .await;
    let a = fixture.broker_with(A, |settings| {
        settings.keys.dead = StreamKey::new("graveyard");
    });
    a.connect().await.unwrap();
    let wide = vec![(b"n".to_vec(), b"1".to_vec()); 3600];
    fixture.add_many(3).await;
    fixture.add_as(SOURCE, "*", &wide).await;
    let held = read(&a, 4).await;
    let batch = [
        settle(&held[0], commit(&[pairs(&[("o", "1")])], None)),
        settle(&held[1], dead_letter()),
        settle(&held[2], done()),
        settle(&held[3], dead_letter()),
    ];
    let refused = |key: &str| {
        Settled::Refused(Refusal {
            key: key.to_owned(),
            reason: RefusalReason::Other,
        })
    };
    let dead = refused("graveyard");
    let expected = [refused("sent"), dead.clone(), Settled::Applied, dead];
    assert_eq!(a.settle(&batch).await.unwrap(), expected);
    assert_eq!(fixture.entries("graveyard").await, [], "it was taken back");
    fixture.delay_raw(b"\xc1").await;
    assert_eq!(a.promote().await.unwrap().undecodable, 0);
}

#[tokio::test]
async fn an_entry_that_is_no_letter_is_not_replayed() {
    let fixture = RedisFixture::start().await;
    let target = Target::from(&settings(&fixture.server.address(), A));
    let keys = settings("", A).keys;
    let letters = DeadLetters::connect(&target, keys).await.unwrap();
    let id = fixture.add_as(DEAD, "*", &pairs(&[("n", "1")])).await;
    let replayed = letters.replay(id, &Meta::fresh(id, 0)).await;
    assert!(
        matches!(replayed, Err(Error::Protocol { .. })),
        "{replayed:?}"
    );
    assert_eq!(fixture.entries(DEAD).await.len(), 1);
    assert_eq!(fixture.entries(RETRY).await, []);
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
    assert_eq!(attempt, Ok(unreachable.clone()));
    let a = fixture.broker_with(A, |settings| {
        settings.connect_timeout = LONG;
        settings.command_timeout = Duration::from_millis(100);
    });
    let attempt = tokio::time::timeout(LONG / 2, a.connect()).await;
    assert_eq!(attempt, Ok(unreachable));
}
