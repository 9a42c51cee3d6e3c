//! `receipts tail -f`: another process writes, this one shows it, on every store.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use operators::Receipt;
use serde_json::json;

use crate::every_store::on_every_store;
use crate::support::{Project, hold};

/// Longer than a line takes on a busy machine; longer means that none comes.
const PATIENCE: Duration = Duration::from_mins(1);

/// A tail under way, its lines as they come.
struct Tail {
    child: Child,
    lines: Receiver<String>,
}

impl Tail {
    fn start(mut command: Command) -> Self {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.stdin(Stdio::null()).spawn().expect("it starts");
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    // The pipe is closed here: nobody reads any more.
                    return;
                }
            }
        });
        Self { child, lines }
    }

    fn receipts(&self, count: usize) -> Vec<Receipt> {
        let line = |_| {
            let line = self.lines.recv_timeout(PATIENCE).expect("a line");
            serde_json::from_str(&line).expect("a receipt")
        };
        (0..count).map(line).collect()
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().try_into().expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("a child of ours");
    }

    fn ended(mut self) -> (ExitStatus, String) {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                break status;
            }
            if begun.elapsed() > PATIENCE {
                self.child.kill().expect("a child of ours");
                panic!("it does not end");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut stderr = String::new();
        let mut pipe = self.child.stderr.take().expect("piped");
        std::io::Read::read_to_string(&mut pipe, &mut stderr).expect("UTF-8");
        (status, stderr)
    }
}

fn follow(project: &Project, more: &[&str]) -> Tail {
    let args = ["receipts", "tail", "-f", "--json", "--after", "newer:0"];
    Tail::start(project.command(&[&args[..], more].concat()))
}

#[test]
fn tail_follows_what_another_process_writes_on_every_store() {
    // rule 5.8
    on_every_store(|project, store| {
        let tail = follow(project, &[]);
        let mut seen = Vec::new();
        for turn in 0..3 {
            let plan = json!([hold(&format!("SO-{turn}")), hold("SO-0")]);
            project.plan(&plan).ended(0);
            seen.extend(tail.receipts(2));
        }
        // Two writers at once.
        std::thread::scope(|scope| {
            for writer in ["a", "b"] {
                let plan: Vec<_> = (0..5).map(|n| hold(&format!("{writer}-{n}"))).collect();
                scope.spawn(move || project.plan(&json!(plan)).ended(0));
            }
        });
        seen.extend(tail.receipts(10));
        assert!(
            matches!(
                tail.lines.recv_timeout(Duration::from_millis(100)),
                Err(RecvTimeoutError::Timeout)
            ),
            "{store}: no more than was written"
        );
        tail.signal(Signal::SIGINT);
        let (status, stderr) = tail.ended();
        assert_eq!(status.code(), Some(0), "{store}: {stderr}");
        assert!(stderr.contains("{\"next\":\"newer:"), "{store}: {stderr}");
        assert_eq!(seen, project.receipts(), "{store}");
    });
}

#[test]
fn tail_waits_for_a_store_that_is_not_there_yet_and_leaves_out_what_does_not_fit() {
    let project = Project::with_file();
    let tail = follow(&project, &["--decision", "DEDUP"]);
    project.plan(&json!([hold("SO-1"), hold("SO-1")])).ended(0);
    project.plan(&json!([hold("SO-2"), hold("SO-2")])).ended(0);
    let seen = tail.receipts(2);
    let all = project.receipts();
    assert_eq!(seen, [all[1].clone(), all[3].clone()]);
    tail.signal(Signal::SIGTERM);
    assert_eq!(tail.ended().0.code(), Some(0));
}

#[test]
fn tail_ends_when_nobody_reads_any_more() {
    let project = Project::with_file();
    project.plan(&json!([hold("SO-1")])).ended(0);
    let mut tail = follow(&project, &[]);
    tail.receipts(1);
    // The reader takes one line more and leaves.
    let (_, nobody) = channel();
    drop(std::mem::replace(&mut tail.lines, nobody));
    project.plan(&json!([hold("SO-2")])).ended(0);
    // Nothing is written any more: it finds out all the same.
    let (status, stderr) = tail.ended();
    assert_eq!(status.code(), Some(0), "{stderr}");
}
