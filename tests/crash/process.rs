//! A victim from a test's side: started, watched, signalled, and always reaped.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use operators_kernel::ActionResult;
use operators_tests::history::Line;
use operators_tests::sink;

/// Nothing a victim does takes this long; longer means that it hangs.
const PATIENCE: Duration = Duration::from_mins(1);

/// What a victim is told, as its command line.
#[derive(Debug, Clone)]
pub struct Orders(Vec<String>);

impl Orders {
    /// Told nothing yet.
    pub fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds an option.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.0.extend([name.to_owned(), format!("{value}")]);
        self
    }

    /// Adds an option without a value.
    #[must_use]
    pub fn flag(mut self, name: &str) -> Self {
        self.0.push(name.to_owned());
        self
    }
}

/// A running victim; it ends with this handle.
#[derive(Debug)]
pub struct Victim {
    child: Child,
    lines: Arc<Mutex<Vec<Line>>>,
    reader: Option<JoinHandle<()>>,
}

/// A victim that ended, and what it printed.
#[derive(Debug)]
pub struct Ended {
    /// How.
    pub status: ExitStatus,
    /// What it printed.
    pub lines: Vec<Line>,
}

impl Ended {
    /// Whether it was killed as it was told to be.
    pub fn was_killed(&self) -> bool {
        self.status.signal() == Some(Signal::SIGKILL as i32)
    }

    /// Its results.
    pub fn results(&self) -> Vec<&ActionResult> {
        self.lines
            .iter()
            .filter_map(|line| match line {
                Line::Result(result) => Some(&**result),
                _ => None,
            })
            .collect()
    }
}

impl Victim {
    /// Starts one, in a process group of its own.
    pub fn start(orders: &Orders) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_operators-victim"))
            .args(&orders.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("the victim starts");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (stdout, seen) = (child.stdout.take().expect("piped"), Arc::clone(&lines));
        let reader = std::thread::spawn(move || {
            for text in BufReader::new(stdout).lines() {
                let text = text.expect("text");
                let line = serde_json::from_str(&text).expect("a whole line");
                seen.lock().expect("lines").push(line);
            }
        });
        Self {
            child,
            lines,
            reader: Some(reader),
        }
    }

    /// Waits until it has its session and its plan.
    pub fn wait_until_ready(&mut self) {
        self.wait_until("ready", |lines| lines.contains(&Line::Ready));
    }

    /// Waits until its output says so.
    pub fn wait_until(&mut self, what: &str, is_there: impl Fn(&[Line]) -> bool) {
        self.poll(what, |victim| {
            is_there(&victim.lines.lock().expect("lines")).then_some(())
        });
    }

    /// Waits until it printed so many results, or ended before.
    pub fn wait_until_result_or_end(&mut self, many: usize) {
        self.poll("results, nor an end", |victim| {
            let lines = victim.lines.lock().expect("lines");
            let is_result = |line: &&Line| matches!(line, Line::Result(_));
            let is_done = lines.iter().filter(is_result).count() >= many;
            drop(lines);
            let ended = victim.child.try_wait().expect("it can be waited for");
            (is_done || ended.is_some()).then_some(())
        });
    }

    /// Lets it run its plan.
    pub fn go(&mut self) {
        let stdin = self.child.stdin.as_mut().expect("piped");
        stdin.write_all(b"go\n").expect("it listens");
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it came to its end.
    pub fn has_ended(&mut self) -> bool {
        let ended = self.child.try_wait().expect("it can be waited for");
        ended.is_some()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it is there");
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"))
    }

    /// Whether it is stopped by a signal, as the system sees it.
    pub fn is_frozen(&self) -> bool {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = std::fs::read_to_string(path).expect("it is there");
        // The state follows the name, which stands in brackets.
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('T'))
    }

    /// Waits until it is stopped.
    pub fn wait_until_frozen(&mut self) {
        self.poll("frozen", |victim| victim.is_frozen().then_some(()));
    }

    /// Kills it, if it still runs, and waits for its end.
    pub fn killed(mut self) -> Ended {
        self.child.kill().expect("it may be killed");
        self.finish()
    }

    /// Waits for its end.
    pub fn finish(mut self) -> Ended {
        let status = self.poll("the end", |victim| {
            victim.child.try_wait().expect("it can be waited for")
        });
        let reader = self.reader.take().expect("read once");
        reader.join().expect("whole lines");
        let lines = std::mem::take(&mut *self.lines.lock().expect("lines"));
        Ended { status, lines }
    }

    fn poll<T>(&mut self, what: &str, look: impl Fn(&mut Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            let lines = &self.lines;
            assert!(start.elapsed() < PATIENCE, "no {what}: {lines:#?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        sink::end(&mut self.child);
    }
}
