//! A running process stopped at a chosen system call, from outside: Debian's `strace` attaches to
//! its main thread and stops the whole process there. Where there is no `strace`, or it may not
//! attach, tests that need it are skipped aloud; with `CI` set they fail.
//!
//! The call at which a process is stopped is made as its last deed: a request that is stopped at the
//! very call that sends it has left. So the positions are told by what was done before, and each
//! but the sending one must be followed by nothing.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::sink;

/// Whether processes can be stopped here; said aloud if not.
pub fn can_be_had() -> bool {
    let asked = Command::new("strace")
        .args(["-qq", "-o", "/dev/null", "true"])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output();
    let problem = match asked {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => format!("install the package `strace`: {error}"),
    };
    assert!(
        std::env::var_os("CI").is_none(),
        "no process can be stopped at a system call: {problem}"
    );
    eprintln!("skipped: no process can be stopped at a system call: {problem}");
    false
}

/// A system call of a process: the `nth` of that name, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its name.
    pub call: String,
    /// Which of them.
    pub nth: usize,
}

impl Place {
    /// The `nth` of that name.
    pub fn new(call: &str, nth: usize) -> Self {
        Self {
            call: call.to_owned(),
            nth,
        }
    }
}

/// Watches the main thread of a process; it lets go of it with this handle.
#[derive(Debug)]
pub struct Watch {
    child: Child,
    log: PathBuf,
}

impl Watch {
    /// Attaches, and stops the process where it is told to, counted from here on. The calls of its
    /// main thread are written into `log`, a line each.
    ///
    /// A process that is stopped by now stays so until it is continued.
    pub fn attach(pid: u32, stop: Option<&Place>, log: &Path) -> Self {
        let stop = stop.map(|Place { call, nth }| {
            let stop = format!("inject={call}:signal=SIGSTOP:when={nth}");
            ["-e".to_owned(), stop]
        });
        let mut child = Command::new("strace")
            .args(stop.into_iter().flatten())
            .arg("-o")
            .arg(log)
            .args(["-p", &pid.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("strace starts");
        let mut said = String::new();
        let stderr = child.stderr.take().expect("piped");
        BufReader::new(stderr)
            .read_line(&mut said)
            .expect("strace says that it is attached");
        assert!(said.contains("attached"), "strace: {said}");
        Self {
            child,
            log: log.to_owned(),
        }
    }

    /// Whether it was stopped at its call.
    pub fn has_stopped_it(&self) -> bool {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        // A stop that it attached to was of another signal, whose line is not in here.
        let signalled = text.split_once("--- SIGSTOP {");
        signalled.is_some_and(|(_, after)| after.contains("--- stopped by SIGSTOP "))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        sink::end(&mut self.child);
    }
}

/// The calls in such a log, in their order.
pub fn calls(log: &Path) -> Vec<Place> {
    let text = fs::read(log).unwrap_or_default();
    let mut calls: Vec<Place> = Vec::new();
    // Signals and the end of the process are told in the same file.
    for line in String::from_utf8_lossy(&text).lines() {
        if let Some((name, _)) = line.split_once('(')
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || b"_0123456789".contains(&byte))
        {
            let earlier = calls.iter().filter(|place| place.call == name).count();
            calls.push(Place::new(name, earlier + 1));
        }
    }
    calls
}
