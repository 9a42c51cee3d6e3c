//! Where and when a run was made, and with which versions: asked of the system, never written down.

use std::fs;
use std::process::Command;

use operators_kernel::Clock;
use operators_seams::SystemClock;
use serde::Serialize;

use crate::peer;

/// The time that processors have worked for this process so far, its children not.
pub(crate) fn cpu_seconds() -> f64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF);
    let seconds = |time: nix::sys::time::TimeVal| {
        let micros = u32::try_from(time.tv_usec()).unwrap_or(0);
        let whole = u32::try_from(time.tv_sec()).unwrap_or(0);
        f64::from(whole) + f64::from(micros) / 1e6
    };
    usage.map_or(0.0, |usage| {
        seconds(usage.user_time()) + seconds(usage.system_time())
    })
}

/// A quarter of this machine's memory, in megabytes; at least as much as Postgres takes unasked.
pub(crate) fn quarter_of_memory_mb() -> u64 {
    let total = after_colon("/proc/meminfo", "MemTotal");
    let kilobytes: Option<u64> = total.split(' ').next().and_then(|kb| kb.parse().ok());
    (kilobytes.unwrap_or(0) / 4 / 1024).max(128)
}

/// The circumstances of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    date: String,
    cpu: String,
    cores: usize,
    memory: String,
    system: String,
    /// One, five and fifteen minutes before the run began.
    load_before: String,
    /// The same when it was over; the run's own load is in it.
    load_after: String,
    versions: Vec<String>,
}

impl Machine {
    /// Looks around.
    pub(crate) fn look() -> Self {
        Self {
            date: SystemClock::new().now().to_string(),
            cpu: after_colon("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory: after_colon("/proc/meminfo", "MemTotal"),
            system: told(Command::new("uname").args(["-s", "-r", "-m"])),
            load_before: load(),
            load_after: String::new(),
            versions: versions(),
        }
    }

    /// Notes how busy the machine was in the end.
    pub(crate) fn finish(&mut self) {
        self.load_after = load();
    }

    /// Two lines for people.
    pub(crate) fn lines(&self) -> String {
        format!(
            "{} · {} · {} cores · {} memory · {}\nload before {} and after {}\n{}\n",
            self.date,
            self.cpu,
            self.cores,
            self.memory,
            self.system,
            self.load_before,
            self.load_after,
            self.versions.join(" · ")
        )
    }
}

fn versions() -> Vec<String> {
    let revision = told(
        Command::new("git")
            .args(["rev-parse", "--short=10", "HEAD"])
            .current_dir(peer::home()),
    );
    let mut found = vec![
        format!("operators at {revision}"),
        told(Command::new("rustc").arg("--version")),
        format!("SQLite {}", rusqlite::version()),
        told(Command::new("pgbench").arg("--version")),
    ];
    for name in ["agent-effects", "dbos"] {
        found.push(format!("{name} {}", locked_version(name)));
    }
    found
}

/// The version a peer's lock file pins.
fn locked_version(name: &str) -> String {
    let lock = peer::home().join("peers").join(name).join("Cargo.lock");
    let text = fs::read_to_string(lock).unwrap_or_default();
    let mut lines = text
        .lines()
        .skip_while(|line| *line != format!("name = \"{name}\""));
    lines
        .nth(1)
        .and_then(|line| line.strip_prefix("version = "))
        .map_or_else(|| "?".to_owned(), |version| version.replace('"', ""))
}

fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let three: Vec<&str> = text.split(' ').take(3).collect();
    three.join(" ")
}

fn after_colon(file: &str, name: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split(':').nth(1))
        .map_or_else(|| "?".to_owned(), |value| value.trim().to_owned())
}

fn told(command: &mut Command) -> String {
    let done = command.output().ok().filter(|done| done.status.success());
    done.map_or_else(
        || "?".to_owned(),
        |done| String::from_utf8_lossy(&done.stdout).trim().to_owned(),
    )
}
