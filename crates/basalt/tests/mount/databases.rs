//! Databases whose volume's server is killed: every commit that they acknowledged is there afterwards.
//!
//! `BASALT_DATABASE_KILLS` says how often each (2 without it, 20 in `make kill-campaign`).

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use basalt_testkit::rng::Rng;
use basalt_testkit::{limit, skip};
use rustix::process::{Pid, Signal};

use crate::fixture::{Volume, sh, wait_for};
use crate::kills::rounds;

const VARIABLE: &str = "BASALT_DATABASE_KILLS";
const USUAL: u64 = 2;
/// PostgreSQL refuses to run as root.
const NOBODY: u32 = 65534;
/// How long PostgreSQL may take to end when it is told to.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client in a process of its own that inserts rows one after the other and says the number of each that is committed.
struct Client {
    process: Child,
    input: ChildStdin,
    /// The file of what it says on standard error.
    complaints: PathBuf,
}

impl Client {
    fn start(command: &mut Command, complaints: PathBuf) -> Client {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&complaints).unwrap())
            .spawn()
            .expect("starting a database's client");
        let input = process.stdin.take().expect("its standard input");
        Client { process, input, complaints }
    }

    /// Inserts rows from `first` on until the client ends, calls `meanwhile` when the first is in; returns the last committed.
    fn insert(mut self, first: u64, line: impl Fn(u64) -> String + Send, meanwhile: impl FnOnce()) -> u64 {
        let client = Pid::from_child(&self.process);
        let _end = limit::Watchdog::new("a database's client", 2 * limit::SHORT, move || {
            let _ = rustix::process::kill_process(client, Signal::KILL);
        });
        let output = self.process.stdout.take().expect("its standard output");
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        let last = std::thread::scope(|scope| {
            let mut input = self.input;
            scope.spawn(move || {
                for number in first.. {
                    if input.write_all(line(number).as_bytes()).is_err() {
                        return;
                    }
                }
            });
            let said = || fs::read_to_string(&self.complaints).unwrap_or_default();
            let mut last =
                next_number(&mut lines).unwrap_or_else(|| panic!("no first row; the client says: {}", said()));
            assert_eq!(last, first, "the client says: {}", said());
            meanwhile();
            while let Some(number) = next_number(&mut lines) {
                assert_eq!(number, last + 1);
                last = number;
            }
            // Ends the thread that writes.
            let _ = self.process.kill();
            last
        });
        let _ = limit::wait(&mut self.process, limit::SHORT);
        last
    }
}

fn next_number(lines: &mut impl Iterator<Item = String>) -> Option<u64> {
    lines.find_map(|line| line.trim().parse().ok())
}

/// After a kill: the database is whole, and rows 1 to the last are there; at least those that were acknowledged.
#[track_caller]
fn expect_rows(what: &str, count: u64, largest: u64, acknowledged: u64) {
    assert_eq!(count, largest, "{what}: rows are missing");
    assert!(largest >= acknowledged, "{what}: {acknowledged} rows were committed, {largest} are there");
}

/// `doubtful` is how many of the last acknowledged commits may be missing.
fn kill_sqlite(mode: &str, doubtful: u64) {
    let Some(volume) = Volume::with_options("256M", "commit=0.5") else { return };
    if !skip::tools_or_skip(&["sqlite3"]) {
        return;
    }
    let mut rng = Rng::new(9);
    let database = volume.path("rows.db");
    // EXTRA: with less, SQLite does not wait for the end of its journal.
    let settings = format!(".bail on\n.timeout 10000\nPRAGMA journal_mode={mode};\nPRAGMA synchronous=EXTRA;\n");
    sh(&volume.root(), "sqlite3 rows.db 'CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB); CREATE INDEX i ON t(v);'");
    let mut last = 0;
    for kill in 0..rounds(VARIABLE, USUAL) {
        let what = format!("{mode}, kill {kill}");
        let mut client = Client::start(Command::new("sqlite3").arg(&database), volume.outside("complaints"));
        let _end = volume.end_after(2 * limit::SHORT);
        client.input.write_all(settings.as_bytes()).unwrap();
        let line = |number| format!("INSERT INTO t VALUES({number}, randomblob(3000));\nSELECT {number};\n");
        let acknowledged = client.insert(last + 1, line, || {
            std::thread::sleep(Duration::from_millis(rng.below(900)));
            volume.kill_server();
        });
        volume.clean_up();
        volume.expect_clean();
        volume.mount();
        let output = sh(&volume.root(), "sqlite3 rows.db 'PRAGMA integrity_check; SELECT count(*), max(id) FROM t;'");
        let numbers = output.trim().strip_prefix("ok\n").unwrap_or_else(|| panic!("{what}: {output}"));
        let (count, largest) = numbers.split_once('|').expect("two numbers");
        let (count, largest) = (count.parse().unwrap(), largest.parse().unwrap());
        expect_rows(&what, count, largest, acknowledged.saturating_sub(doubtful));
        last = largest;
    }
    println!("SQLite, journal mode {mode}: {last} rows");
}

#[test]
fn sqlite_with_a_write_ahead_log_keeps_every_commit() {
    kill_sqlite("wal", 0);
}

#[test]
fn sqlite_with_a_rollback_journal_keeps_every_commit() {
    kill_sqlite("truncate", 0);
}

#[test]
fn sqlite_that_deletes_its_journal_keeps_every_commit() {
    // The server may die between the journal's unlink, which commits, and the fsync of the directory. SQLite then cannot open the
    // directory, takes that for a file system where none is needed (`unixDelete` in its os_unix.c), and acknowledges.
    kill_sqlite("delete", 1);
}

/// Debian's PostgreSQL, the newest installed.
fn postgres_programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let programs = versions.map(|entry| entry.path().join("bin")).filter(|path| path.join("initdb").exists()).max();
    if programs.is_none() {
        skip::skip("postgresql not installed (scripts/install-dependencies)");
    }
    programs
}

/// A running PostgreSQL server; its sockets lie beside the mount.
struct Postgres<'a> {
    process: Child,
    programs: &'a Path,
    sockets: PathBuf,
}

impl<'a> Postgres<'a> {
    fn start(programs: &'a Path, data: &Path, sockets: PathBuf) -> Postgres<'a> {
        let process = Command::new(programs.join("postgres"))
            .arg("-D")
            .arg(data)
            .arg("-k")
            .arg(&sockets)
            .args(["-c", "listen_addresses=", "-c", "shared_buffers=4MB", "-c", "checkpoint_timeout=30s"])
            .uid(NOBODY)
            .gid(NOBODY)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::options().append(true).create(true).open(sockets.join("messages")).unwrap())
            .spawn()
            .expect("starting PostgreSQL");
        let server = Postgres { process, programs, sockets };
        wait_for("PostgreSQL", || {
            let mut ready = Command::new(programs.join("pg_isready"));
            ready.arg("-q").arg("-h").arg(&server.sockets).status().is_ok_and(|status| status.success())
        });
        server
    }

    fn psql(&self) -> Command {
        let mut command = Command::new(self.programs.join("psql"));
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "nobody", "-d", "postgres", "-h"]);
        command.arg(&self.sockets).uid(NOBODY).gid(NOBODY).current_dir("/");
        command
    }

    #[track_caller]
    fn ask(&self, sql: &str) -> String {
        let output = limit::output(self.psql().args(["-c", sql]).stdin(Stdio::null()), limit::SHORT).unwrap();
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Ends it at once, whatever it does: its volume is gone.
    fn end(mut self) {
        if let Some(process) = Pid::from_raw(self.process.id() as i32) {
            let _ = rustix::process::kill_process(process, Signal::QUIT);
        }
        // It is killed when it does not.
        let _ = limit::wait(&mut self.process, PATIENCE);
    }
}

impl Drop for Postgres<'_> {
    fn drop(&mut self) {
        // After a failed test.
        let _ = self.process.kill();
        let _ = limit::wait(&mut self.process, PATIENCE);
    }
}

#[test]
fn postgresql_keeps_every_commit() {
    let Some(programs) = postgres_programs() else { return };
    let Some(volume) = Volume::with_options("512M", "commit=0.5") else { return };
    let (data, sockets) = (volume.path("data"), volume.outside("sockets"));
    for directory in [&data, &sockets] {
        fs::create_dir(directory).unwrap();
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(directory, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let mut initdb = Command::new(programs.join("initdb"));
    initdb
        .args(["--auth=trust", "--username=nobody", "--no-locale", "--encoding=UTF8", "-D"])
        .arg(&data)
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/");
    let initialised = limit::output(&mut initdb, limit::LONG).unwrap();
    assert!(initialised.status.success(), "{}", String::from_utf8_lossy(&initialised.stderr));
    let mut rng = Rng::new(10);
    let mut last = 0;
    let mut server = Postgres::start(&programs, &data, sockets.clone());
    server.ask("CREATE TABLE t(id bigint PRIMARY KEY, v text)");
    for kill in 0..rounds(VARIABLE, USUAL) {
        let what = format!("kill {kill}");
        let line = |number| format!("INSERT INTO t VALUES({number}, repeat('x', 2000)) RETURNING id;\n");
        let _end = volume.end_after(2 * limit::SHORT);
        let client = Client::start(&mut server.psql(), volume.outside("complaints"));
        let acknowledged = client.insert(last + 1, line, || {
            std::thread::sleep(Duration::from_millis(rng.below(800)));
            volume.kill_server();
        });
        server.end();
        volume.clean_up();
        volume.expect_clean();
        volume.mount();
        server = Postgres::start(&programs, &data, sockets.clone());
        let answer = server.ask("SELECT count(*), max(id) FROM t");
        let (count, largest) = answer.split_once('|').expect("two numbers");
        let (count, largest) = (count.parse().unwrap(), largest.parse().unwrap());
        expect_rows(&what, count, largest, acknowledged);
        // Reads every row through heap and index.
        assert_eq!(server.ask("SELECT count(*) FROM t WHERE v = repeat('x', 2000) AND id > 0"), count.to_string());
        last = largest;
    }
    println!("PostgreSQL: {last} rows");
    server.end();
}
