//! The supervisor of one program: starts it, and ends it in time whatever becomes of who asked for it.
//!
//! Owns the program's process group, from before its start until it ended and nobody waits for what it
//! left behind. It must not know what the program is for. On its stdin is a socket: from there come
//! [`Orders`] in one line, then what the program is told, then [`DONE`]; it answers with a [`Report`]
//! a line. A socket that is closed before means that the other side is gone.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a supervisor is called as, before the program and its arguments.
pub(crate) const VERB: &str = "supervise";

/// Which conversation this is: another one is refused.
pub(crate) const VERSION: u32 = 1;

/// Said when nobody needs to be ended any more.
pub(crate) const DONE: u8 = b'.';

/// What to do with the program.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) version: u32,
    /// When it is ended, since the boot of the machine. `None`: with who asked for it.
    pub(crate) until: Option<Duration>,
    /// How many bytes it is told. `None`: whatever comes.
    pub(crate) told: Option<usize>,
}

impl Orders {
    pub(crate) fn line(&self) -> String {
        format!("{}\n", serde_json::to_string(self).unwrap_or_default())
    }
}

/// What became of the program.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// From here on it may run.
    Starting,
    /// It runs, in the group of this number.
    Started(i32),
    /// It does not, and will not.
    NotStarted(String),
    /// With that code, or by a signal.
    Ended(Option<i32>),
    /// Its time was over.
    Killed,
}

impl Report {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}

/// How long ago the machine was started, the time it slept included: the same for every process.
#[cfg(target_os = "linux")]
pub(crate) fn since_boot() -> Option<Duration> {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .ok()
        .map(Duration::from)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn since_boot() -> Option<Duration> {
    None
}

#[cfg(target_os = "linux")]
pub use linux::supervise;

/// Supervises one program. This system cannot.
#[cfg(not(target_os = "linux"))]
pub fn supervise(_argv: &[std::ffi::OsString]) -> std::io::Result<()> {
    Err(std::io::Error::from(std::io::ErrorKind::Unsupported))
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::OsString;
    use std::fs::OpenOptions;
    use std::io::{self, BufRead as _, BufReader, Read, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, ChildStdin, Command, Stdio};
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::thread;
    use std::time::Duration;

    use nix::errno::Errno;
    use nix::sys::signal::{Signal, killpg};
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
    use nix::unistd::{Pid, dup2_stderr, dup2_stdout, setsid};

    use super::{DONE, Orders, Report, VERSION, since_boot};

    /// How often the clock is looked at: a machine that slept past a deadline has no program run for
    /// longer than this.
    const LOOK: Duration = Duration::from_millis(100);

    /// The longest line of orders.
    const ORDERS_BYTES_MAX: u64 = 4 * 1024;

    enum Event {
        /// The program ended.
        Ended(Option<i32>),
        /// What it left behind may go on.
        Done,
        /// Who asked for it is gone.
        Alone,
    }

    /// Supervises one program: the name, and its arguments. Whoever starts this speaks through a
    /// socket on its stdin; an error is one before anything was started.
    pub fn supervise(argv: &[OsString]) -> io::Result<()> {
        let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        // It fails on all that is no socket.
        socket.peer_addr()?;
        // So that what ends or stops the group of whoever started this does not reach it. It fails
        // where this leads a group already.
        let _is_first = setsid().is_ok();
        let mut heard = BufReader::new(socket.try_clone()?);
        let (orders, told) = match orders(&mut heard) {
            Ok(orders) => orders,
            Err(error) => return report(&socket, &Report::NotStarted(error.to_string())),
        };
        report(&socket, &Report::Starting)?;
        let mut child = match start(argv, &orders) {
            Ok(child) => child,
            Err(error) => return report(&socket, &Report::NotStarted(error.to_string())),
        };
        let group = Pid::from_raw(child.id().try_into().unwrap_or_default());
        // From here on the program is ended by us, whoever still listens.
        drop(report(&socket, &Report::Started(group.as_raw())));
        drop(let_go_of_its_streams());
        let (events, happened) = mpsc::channel();
        tell(&mut child, heard, told, orders.told.is_none(), &events);
        wait_for(group, events);
        if !watch(&socket, &happened, orders.until) {
            // It fails where all of it has ended.
            let _is_killed = killpg(group, Signal::SIGKILL).is_ok();
        }
        // Only now is its number free for others.
        child.wait().map(drop)
    }

    fn orders(heard: &mut BufReader<UnixStream>) -> io::Result<(Orders, Vec<u8>)> {
        let mut line = String::new();
        heard.take(ORDERS_BYTES_MAX).read_line(&mut line)?;
        let orders: Orders = serde_json::from_str(&line)?;
        if orders.version != VERSION {
            return Err(io::Error::other("its supervisor is of another version"));
        }
        let mut told = vec![0; orders.told.unwrap_or(0)];
        heard.read_exact(&mut told)?;
        Ok((orders, told))
    }

    fn start(argv: &[OsString], orders: &Orders) -> io::Result<Child> {
        let (program, arguments) = argv
            .split_first()
            .ok_or_else(|| io::Error::other("there is no program to start"))?;
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        // Both kinds of streams are the caller's own; only stdin is not, for the socket is there.
        command.stdin(Stdio::piped());
        if is_over(orders.until) {
            return Err(io::Error::other("its time was over before it could start"));
        }
        command.spawn()
    }

    fn is_over(until: Option<Duration>) -> bool {
        until.is_some_and(|until| since_boot().is_none_or(|now| now >= until))
    }

    fn report(mut socket: &UnixStream, report: &Report) -> io::Result<()> {
        let line = serde_json::to_string(report)?;
        socket.write_all(format!("{line}\n").as_bytes())
    }

    /// A stream ends for its reader when nobody holds it: the program alone shall.
    fn let_go_of_its_streams() -> io::Result<()> {
        let nothing = OpenOptions::new().write(true).open("/dev/null")?;
        dup2_stdout(&nothing)?;
        dup2_stderr(&nothing)?;
        Ok(())
    }

    /// Tells the program what it is told, and hears whether the other side is still there.
    fn tell(
        child: &mut Child,
        mut heard: BufReader<UnixStream>,
        told: Vec<u8>,
        is_stream: bool,
        events: &Sender<Event>,
    ) {
        let stdin = child.stdin.take();
        let events = events.clone();
        if is_stream {
            thread::spawn(move || {
                pass_on(&mut heard, stdin);
                events.send(Event::Alone)
            });
            return;
        }
        if let Some(mut stdin) = stdin {
            // A program need not read what it is told, and may close its stdin at once.
            thread::spawn(move || stdin.write_all(&told));
        }
        thread::spawn(move || {
            let mut byte = [0];
            let event = match heard.read_exact(&mut byte) {
                Ok(()) if byte == [DONE] => Event::Done,
                _ => Event::Alone,
            };
            events.send(event)
        });
    }

    /// Passes on what comes, to the end. Not by `io::copy`: the system would move it by itself, and hold
    /// the pipe all the while that nothing comes, so that the program can neither read nor be ended.
    fn pass_on(heard: &mut impl Read, mut stdin: Option<ChildStdin>) {
        let mut chunk = vec![0; 8 * 1024];
        while let Ok(count @ 1..) = heard.read(&mut chunk) {
            let bytes = chunk.get(..count).unwrap_or_default();
            // A program that closed its stdin is still to be ended with the other side.
            if stdin
                .as_mut()
                .is_some_and(|to| to.write_all(bytes).is_err())
            {
                stdin = None;
            }
        }
    }

    /// Waits for the program's end without taking note of it: so long its number is nobody else's.
    fn wait_for(program: Pid, events: Sender<Event>) {
        thread::spawn(move || {
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
            let code = loop {
                match waitid(Id::Pid(program), flags) {
                    Ok(WaitStatus::Exited(_, code)) => break Some(code),
                    Err(Errno::EINTR) => {}
                    Ok(_) | Err(_) => break None,
                }
            };
            events.send(Event::Ended(code))
        });
    }

    /// Waits until there is nothing left to do: whether what still runs may go on.
    fn watch(socket: &UnixStream, happened: &Receiver<Event>, until: Option<Duration>) -> bool {
        let mut is_reported = false;
        loop {
            if is_over(until) {
                if !is_reported {
                    drop(report(socket, &Report::Killed));
                }
                return false;
            }
            let left = until.zip(since_boot());
            let left = left.map_or(LOOK, |(until, now)| until.saturating_sub(now).min(LOOK));
            match happened.recv_timeout(left) {
                Ok(Event::Ended(code)) => {
                    is_reported = true;
                    drop(report(socket, &Report::Ended(code)));
                }
                Ok(Event::Done) => return true,
                Ok(Event::Alone) | Err(mpsc::RecvTimeoutError::Disconnected) => return false,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
        }
    }
}
