//! A Postgres to measure on: a throw-away one with `fsync` on, or one that was given.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User, chown};
use url::Url;

/// The same for every side. Stock settings, but for room: enough connections, a quarter of the
/// machine's memory for buffers as Postgres's manual advises, and no checkpoint in the middle of a
/// phase. Durability is as it comes: `fsync` and `synchronous_commit` on.
const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=200",
    "max_wal_size=8GB",
    "checkpoint_timeout=30min",
    "log_line_prefix=%d|",
];

const READY_MAX: Duration = Duration::from_secs(30);

/// Who runs the server when root starts it: it refuses to be root.
const SERVER_USER: &str = "postgres";

/// A server, and how many databases were made on it.
#[derive(Debug)]
pub(crate) struct Server {
    url: Url,
    own: Option<Own>,
    databases: usize,
}

/// The server this program started.
#[derive(Debug)]
struct Own {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Uses the server at `url`.
    pub(crate) fn given(url: &str) -> Result<Self> {
        Ok(Self {
            url: Url::parse(url).context("the Postgres URL")?,
            own: None,
            databases: 0,
        })
    }

    /// Starts a server of its own below `dir`, which ends with this process, however that ends.
    pub(crate) fn start(dir: &Path) -> Result<Self> {
        let bin = binaries()?;
        let home = dir.join("postgres");
        fs::create_dir(&home)?;
        if Uid::effective().is_root() {
            let user = User::from_name(SERVER_USER)?
                .with_context(|| format!("no user `{SERVER_USER}` to run Postgres as"))?;
            chown(&home, Some(user.uid), Some(user.gid))?;
        }
        let data = home.join("data");
        let made = as_server_user(&bin.join("initdb"))
            .args(["--no-sync", "--username=bench", "--auth=trust"])
            .args(["--encoding=UTF8", "--no-locale", "--pgdata"])
            .arg(&data)
            .stdout(Stdio::null())
            .status()?;
        if !made.success() {
            bail!("initdb failed");
        }
        let port = free_port()?;
        let log = home.join("log");
        let mut server = as_server_user(&bin.join("postgres"));
        server
            .arg("-D")
            .arg(&data)
            .args(["-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?);
        for setting in SETTINGS {
            server.args(["-c", setting]);
        }
        let buffers_mb = crate::machine::quarter_of_memory_mb();
        server.args(["-c", &format!("shared_buffers={buffers_mb}MB")]);
        let child = server.spawn().context("starting postgres")?;
        let url = Url::parse(&format!("postgres://bench@127.0.0.1:{port}/postgres"))?;
        let server = Self {
            url,
            own: Some(Own { child, log }),
            databases: 0,
        };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&self) -> Result<()> {
        let begun = Instant::now();
        while self.run("SELECT 1").is_err() {
            if begun.elapsed() > READY_MAX {
                bail!("Postgres did not get ready");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        if self.run("SHOW fsync")?.trim() != "on" {
            bail!("this Postgres runs with fsync off; nothing it says is durable");
        }
        Ok(())
    }

    /// A URL to an empty database.
    pub(crate) fn fresh_database(&mut self) -> Result<String> {
        self.databases += 1;
        let name = format!("bench_{}_{}", std::process::id(), self.databases);
        self.run(&format!("CREATE DATABASE {name}"))?;
        let mut url = self.url.clone();
        url.set_path(&name);
        Ok(url.into())
    }

    /// Removes what [`fresh_database`](Self::fresh_database) made.
    pub(crate) fn drop_database(&self, url: &str) -> Result<()> {
        let name = Url::parse(url)?.path().trim_start_matches('/').to_owned();
        self.run(&format!("DROP DATABASE {name} WITH (FORCE)"))?;
        Ok(())
    }

    /// Runs statements through `psql`, on the server's own database.
    pub(crate) fn run(&self, statements: &str) -> Result<String> {
        run_on(self.url.as_str(), statements)
    }

    /// What the server logged, if it is our own.
    pub(crate) fn log(&self) -> Option<Result<String>> {
        let own = self.own.as_ref()?;
        Some(fs::read_to_string(&own.log).context("reading the server's log"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(own) = &mut self.own else { return };
        if let Ok(pid) = i32::try_from(own.child.id()) {
            // SIGINT is Postgres's fast shutdown. If it is gone already, there is nothing to do.
            let _gone = kill(Pid::from_raw(pid), Signal::SIGINT);
        }
        drop(own.child.wait());
    }
}

/// Runs statements through `psql`.
pub(crate) fn run_on(url: &str, statements: &str) -> Result<String> {
    let done = Command::new("psql")
        .args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c"])
        .args([statements, url])
        .output()
        .context("running psql")?;
    if !done.status.success() {
        bail!("psql: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// A command that ends with this process, run by an ordinary user.
fn as_server_user(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig=INT");
    if Uid::effective().is_root() {
        command.arg(format!("--reuid={SERVER_USER}"));
        command.arg(format!("--regid={SERVER_USER}"));
        command.arg("--clear-groups");
    }
    command.arg(program).current_dir("/");
    command
}

/// Where Debian keeps the newest server's programs, or wherever `postgres` is found.
fn binaries() -> Result<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|bin| bin.join("postgres").exists())
        .collect();
    found.sort();
    if let Some(newest) = found.pop() {
        return Ok(newest);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .find(|bin| bin.join("postgres").exists() && bin.join("initdb").exists())
        .context("no Postgres here: install Debian's `postgresql`, or give --postgres URL")
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
