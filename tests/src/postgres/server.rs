//! A throw-away server: found or installed, started, killed, woken, and gone with its process.

use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Starts the server given; once nobody holds the other end of stdin, kills it and takes its folder
/// away. `$1` is the folder.
const GUARD: &str = r#"folder=$1; shift; "$@" </dev/null & server=$!; echo "$server"
cat >/dev/null; kill -9 "$server" 2>/dev/null; wait "$server"; rm -rf "$folder""#;

/// A server in a folder of its own.
#[derive(Debug)]
pub struct Server {
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
    settings: Vec<String>,
    running: Mutex<Option<Running>>,
}

/// A started server. Closing `_stdin`, or dying, ends it.
#[derive(Debug)]
struct Running {
    guard: Child,
    server: i32,
    _stdin: ChildStdin,
}

impl Server {
    /// Makes a data folder and starts a server on it.
    pub fn start(settings: &[&str]) -> Result<Self, String> {
        let programs = programs()?;
        let folder = TempDir::new().map_err(in_words)?.keep();
        give_away(&folder)?;
        let data = folder.join("data");
        let made = as_server(&programs.join("initdb"))
            .args(["-N", "-U", "postgres", "--auth=trust", "-E", "UTF8"])
            .args(["--locale=C", "-D"])
            .arg(&data)
            .output()
            .map_err(in_words)?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into_owned());
        }
        // Somebody may take the port between our look and the server's start.
        for _ in 0..3 {
            let server = Self {
                programs: programs.clone(),
                folder: folder.clone(),
                port: free_port()?,
                settings: settings.iter().map(|&s| s.to_owned()).collect(),
                running: Mutex::new(None),
            };
            if server.wake().is_ok() {
                return Ok(server);
            }
        }
        Err("it does not answer".to_owned())
    }

    /// The address of a database on it.
    pub fn url(&self, database: &str) -> String {
        let port = self.port;
        let unsafe_fsync = if self.settings.iter().any(|s| s == "fsync=off") {
            "?allow_unsafe_fsync=for-tests"
        } else {
            ""
        };
        format!("postgres://postgres@127.0.0.1:{port}/{database}{unsafe_fsync}")
    }

    /// Its port on the loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its data folder.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Starts it, and waits until it answers.
    pub fn wake(&self) -> Result<(), String> {
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "guard"]).arg(&self.folder);
        // The guard stays as it is and keeps the right to kill.
        let server = as_server(&self.programs.join("postgres"));
        command.arg(server.get_program()).args(server.get_args());
        command.arg("-D").arg(self.data());
        command.args(["-p", &self.port.to_string()]);
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "max_connections=400",
            "shared_buffers=64MB",
            "logging_collector=off",
        ] {
            command.args(["-c", setting]);
        }
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join("log"))
            .map_err(in_words)?;
        let mut guard = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(in_words)?;
        let stdin = guard.stdin.take().ok_or("no pipe to be had")?;
        let server = read_line(guard.stdout.take().ok_or("no pipe to be had")?)?;
        let running = Running {
            guard,
            server: server.parse().map_err(|_| "the guard did not start")?,
            _stdin: stdin,
        };
        *self.running.lock().expect("the lock") = Some(running);
        self.wait_until_ready()
    }

    fn wait_until_ready(&self) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(30) {
            let ready = Command::new(self.programs.join("pg_isready"))
                .args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()])
                .status()
                .map_err(in_words)?;
            if ready.success() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.kill();
        Err(format!("it does not answer: {}", self.log()))
    }

    /// Kills it as a power cut would, as far as processes go, and waits for its end.
    pub fn kill(&self) {
        let Some(mut running) = self.running.lock().expect("the lock").take() else {
            return;
        };
        // The guard first, or it would take the folder away.
        drop(running.guard.kill());
        drop(running.guard.wait());
        let server = nix::unistd::Pid::from_raw(running.server);
        if nix::sys::signal::kill(server, nix::sys::signal::SIGKILL).is_err() {
            // It ended by itself.
        }
        // Its children see that it is gone and end by themselves; until then the folder is in use.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) && self.has_children(running.server) {
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(std::fs::remove_file(self.data().join("postmaster.pid")));
    }

    /// Whether a process still works in the data folder.
    fn has_children(&self, server: i32) -> bool {
        let folder = self.data();
        let Ok(processes) = std::fs::read_dir("/proc") else {
            return false;
        };
        processes.flatten().any(|process| {
            let is_it = process.file_name().to_string_lossy() == server.to_string();
            let works_there =
                std::fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == folder);
            // What is killed but not yet waited for has no folder any more.
            works_there && !is_it
        })
    }

    /// Stops it in good order, so that its folder can be copied.
    pub fn stop(&self) {
        let stopped = as_server(&self.programs.join("pg_ctl"))
            .args(["stop", "-s", "-w", "-m", "fast", "-D"])
            .arg(self.data())
            .status();
        assert!(stopped.expect("pg_ctl").success(), "stops");
        self.kill();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

fn in_words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(in_words)?;
    Ok(listener.local_addr().map_err(in_words)?.port())
}

fn read_line(mut from: impl Read) -> Result<String, String> {
    let mut line = String::new();
    let mut byte = [0];
    while from.read(&mut byte).map_err(in_words)? == 1 && byte != *b"\n" {
        line.push(char::from(byte[0]));
    }
    Ok(line)
}

/// The folder of the newest server's programs, installed if that can be done.
pub fn programs() -> Result<PathBuf, String> {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    if let Some(found) = find_programs() {
        return Ok(found);
    }
    if !nix::unistd::geteuid().is_root() {
        return Err("no /usr/lib/postgresql; install Debian's `postgresql`".to_owned());
    }
    INSTALLED.get_or_init(|| install("postgresql"));
    find_programs().ok_or_else(|| "`apt-get install postgresql` did not help".to_owned())
}

/// Asks Debian for a package, once; whether it came shows by itself.
pub fn install(package: &str) {
    eprintln!("installing {package}");
    drop(
        Command::new("apt-get")
            .args(["install", "-y", "-q", "--no-install-recommends", package])
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdout(Stdio::null())
            .status(),
    );
}

fn find_programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<(u32, PathBuf)> = versions
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .filter(|(_, programs)| programs.join("initdb").exists())
        .collect();
    found.sort();
    found.pop().map(|(_, programs)| programs)
}

/// The server refuses to run as root: then it runs as `postgres`, or as `nobody`.
fn server_user() -> Option<nix::unistd::User> {
    if !nix::unistd::geteuid().is_root() {
        return None;
    }
    ["postgres", "nobody"]
        .iter()
        .find_map(|name| nix::unistd::User::from_name(name).ok().flatten())
}

fn give_away(folder: &Path) -> Result<(), String> {
    match server_user() {
        Some(user) => chown(folder, Some(user.uid.as_raw()), Some(user.gid.as_raw())),
        None => Ok(()),
    }
    .map_err(in_words)
}

/// A program as the server's user.
pub fn as_server(program: &Path) -> Command {
    let Some(user) = server_user() else {
        return Command::new(program);
    };
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={}", user.uid));
    command.arg(format!("--regid={}", user.gid));
    command.arg("--clear-groups").arg(program);
    command
}
