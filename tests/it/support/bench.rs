//! What a test holds: a Redis, a directory, stages with a scripted handler, and the workers it starts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::db::Pairs;
use super::scratch::Scratch;
use super::{Db, DeadLetter, Journal, Redis, StageFile, Summary, Worker, eventually};

pub(crate) struct Bench {
    pub(crate) redis: Redis,
    directory: Scratch,
    workers: AtomicU32,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::on(Redis::start().await)
    }

    pub(crate) fn on(redis: Redis) -> Self {
        Self {
            redis,
            directory: Scratch::new("bench"),
            workers: AtomicU32::new(0),
        }
    }

    pub(crate) fn db(&self) -> Db {
        self.redis.db()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.file(name)
    }

    /// A stage whose handler does what each entry's field `do` says, and `default` without it.
    pub(crate) fn scripted(&self, default: &str) -> StageFile {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/handlers/scripted.pl");
        self.exec(&["perl", script, &text(self.directory.path()), default])
    }

    /// A stage with this command as its handler.
    pub(crate) fn exec(&self, command: &[&str]) -> StageFile {
        let handler = json!({"type": "Exec", "exec": {"command": command}});
        StageFile::new(&self.directory, &handler)
    }

    /// A stage with an HTTP handler at this port.
    pub(crate) fn http(&self, port: u16) -> StageFile {
        let handler = json!({"type": "HTTP", "http": {"port": port, "path": "/handle"}});
        StageFile::new(&self.directory, &handler)
    }

    /// Starts a worker of the stage.
    pub(crate) fn worker(&self, stage: &StageFile) -> Worker {
        self.worker_with(stage, &[])
    }

    /// Starts a worker that ends when nothing is left to do.
    pub(crate) fn worker_until_idle(&self, stage: &StageFile) -> Worker {
        self.worker_with(stage, &["--until-idle"])
    }

    pub(crate) fn worker_with(&self, stage: &StageFile, arguments: &[&str]) -> Worker {
        self.worker_at(stage, &self.redis.url(), arguments)
    }

    /// Starts a worker with another Redis URL.
    pub(crate) fn worker_at(&self, stage: &StageFile, url: &str, arguments: &[&str]) -> Worker {
        self.spawn(stage, url, arguments, Stdio::null())
    }

    /// Starts a worker that turns the lines of its standard input into entries.
    pub(crate) fn worker_fed(&self, stage: &StageFile, lines: &str) -> Worker {
        let path = self.file("input");
        std::fs::write(&path, lines).expect("the input is written");
        let input = std::fs::File::open(&path).expect("the input is there");
        let arguments = ["--input", "-", "--until-idle"];
        self.spawn(stage, &self.redis.url(), &arguments, input.into())
    }

    /// Runs a worker until nothing is left to do: its counts.
    pub(crate) async fn run_dry(&self, stage: &StageFile, within: Duration) -> Summary {
        let mut worker = self.worker_with(stage, &["--until-idle"]);
        worker.summary(within).await
    }

    fn spawn(&self, stage: &StageFile, url: &str, arguments: &[&str], input: Stdio) -> Worker {
        let mut command = Command::new(env!("CARGO_BIN_EXE_streamstage"));
        command
            .args(["dev", "-o", "json", "--redis", url, "-f"])
            .arg(stage.write())
            .args(arguments)
            .stdin(input);
        let number = self.workers.fetch_add(1, Ordering::Relaxed);
        Worker::start(&mut command, &self.file(&format!("worker-{number}")))
    }

    /// Runs a verb of `streamstage dlq` on the stage: exit code and standard output.
    pub(crate) fn dlq(&self, stage: &StageFile, verb: &str, arguments: &[&str]) -> (i32, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_streamstage"))
            .args(["dlq", verb, "--redis", &self.redis.url(), "-f"])
            .arg(stage.write())
            .args(arguments)
            .output()
            .expect("streamstage dlq runs");
        let (out, err) = (text_of(&output.stdout), text_of(&output.stderr));
        (output.status.code().unwrap_or(-1), out + &err)
    }

    /// Adds one entry with this key and these steps.
    pub(crate) async fn add(&self, stage: &StageFile, key: &str, steps: &str) {
        self.add_all(stage, [(key.to_owned(), steps.to_owned())])
            .await;
    }

    /// Adds `count` entries `prefix-0`, `prefix-1` ... with the same steps.
    pub(crate) async fn add_many(&self, stage: &StageFile, prefix: &str, count: u32, steps: &str) {
        let entries = (0..count).map(|n| (format!("{prefix}-{n}"), steps.to_owned()));
        self.add_all(stage, entries).await;
    }

    pub(crate) async fn add_all(
        &self,
        stage: &StageFile,
        entries: impl IntoIterator<Item = (String, String)>,
    ) {
        let entries: Vec<Pairs> = entries
            .into_iter()
            .map(|(key, steps)| vec![("key".to_owned(), key), ("do".to_owned(), steps)])
            .collect();
        self.db().add_all(stage.stream(), &entries).await;
    }

    pub(crate) fn journal(&self) -> Journal {
        Journal::read(&self.file("journal"))
    }

    /// Opens a gate that handlers wait at, or makes a condition true that they look at.
    pub(crate) fn open(&self, gate: &str) {
        std::fs::write(self.file(gate), "").expect("the gate opens");
    }

    /// Waits until this many handlers have started.
    pub(crate) async fn started(&self, count: usize, within: Duration) -> Journal {
        let what = format!("{count} handlers have started");
        eventually(&what, within, async || {
            let journal = self.journal();
            (journal.starts() >= count).then_some(journal)
        })
        .await
    }

    /// Waits until nothing of the stage is undelivered, pending or delayed.
    pub(crate) async fn settled(&self, stage: &StageFile, within: Duration) {
        let what = format!("{} has settled all its entries", stage.name());
        eventually(&what, within, async || {
            self.is_settled(stage).await.then_some(())
        })
        .await;
    }

    /// Whether nothing of the stage is undelivered, pending or delayed.
    pub(crate) async fn is_settled(&self, stage: &StageFile) -> bool {
        let (retry, delayed) = (stage.key("retry"), stage.key("delayed"));
        let keys = ["3", stage.stream(), &retry, &delayed, stage.group()];
        let look = [&["EVAL", include_str!("left.lua")], keys.as_slice()].concat();
        // A key of another type is an error: then nothing is settled.
        self.db()
            .try_call::<i64>(&look)
            .await
            .is_ok_and(|left| left == 0)
    }

    /// Entries pending in the source and in the retry stream.
    pub(crate) async fn pending(&self, stage: &StageFile) -> u64 {
        let (db, retry) = (self.db(), stage.key("retry"));
        db.pending_in(stage.stream(), stage.group()).await
            + db.pending_in(&retry, stage.group()).await
    }

    pub(crate) async fn delayed(&self, stage: &StageFile) -> u64 {
        self.db().size(&stage.key("delayed")).await
    }

    pub(crate) async fn dead_letters(&self, stage: &StageFile) -> Vec<DeadLetter> {
        self.db().dead_letters(&stage.key("dead")).await
    }

    /// The workers' reports, parsed.
    pub(crate) async fn reports(&self, stage: &StageFile) -> Vec<Value> {
        let reports: Vec<String> = self.db().call(&["HVALS", &stage.key("workers")]).await;
        let parse = |text: &String| serde_json::from_str(text).expect("a report is JSON");
        reports.iter().map(parse).collect()
    }

    /// Entries counted as lost, for the whole stage.
    pub(crate) async fn lost(&self, stage: &StageFile) -> u64 {
        let lost: Option<u64> = self
            .db()
            .call(&["HGET", &stage.key("cursor"), "lost"])
            .await;
        lost.unwrap_or(0)
    }

    /// Waits until a worker has reported, which it does soon after it began to read.
    pub(crate) async fn reported(&self, stage: &StageFile, workers: u64, within: Duration) {
        let key = stage.key("workers");
        eventually("the workers have reported", within, async || {
            (self.db().size(&key).await >= workers).then_some(())
        })
        .await;
    }

    /// Waits until a worker has reported since now: what happened before is in the cursor.
    pub(crate) async fn next_report(&self, stage: &StageFile, within: Duration) {
        let time: Vec<u64> = self.db().call(&["TIME"]).await;
        let now = time[0] * 1_000 + time[1] / 1_000;
        eventually("a worker reports again", within, async || {
            let reports = self.reports(stage).await;
            let newer = |report: &Value| report["at"].as_u64().is_some_and(|at| at > now);
            reports.iter().any(newer).then_some(())
        })
        .await;
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
