//! A DynamoDB-compatible server for tests: found, or got from a package registry and started.
//!
//! `OPERATORS_TEST_DYNAMODB_ENDPOINT` names one that runs already. Otherwise `dynoxide` is installed
//! once into `.tools/` and started on a free port of the loopback, one per test binary, in memory.
//! It dies with the test process, even when that is killed. Where it cannot be had, tests that need
//! it are skipped aloud; with `CI` set they fail.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use operators_kernel::DurableExec;
use operators_seams::DynamoStore;
use tokio::sync::OnceCell;

use crate::stores::Bench;

/// The emulator and its version; `docs/guides/dynamodb.md` names the same.
const CRATE: &str = "dynoxide-rs";
const VERSION: &str = "3.2.0";

/// Starts the program given, and kills it once nobody holds the other end of stdin.
const GUARD: &str =
    r#""$@" >/dev/null 2>&1 </dev/null & child=$!; cat >/dev/null; kill -9 "$child""#;

/// Where a server is; `None`, said aloud, if there is none to be had.
pub fn endpoint() -> Option<&'static str> {
    static SERVER: OnceLock<Result<Server, String>> = OnceLock::new();
    match SERVER.get_or_init(Server::find) {
        Ok(server) => Some(&server.endpoint),
        Err(problem) => {
            assert!(
                std::env::var_os("CI").is_none(),
                "no DynamoDB-compatible server: {problem}"
            );
            eprintln!("skipped: no DynamoDB-compatible server: {problem}");
            None
        }
    }
}

/// The address of a table nobody else has, not made yet.
pub fn fresh_url(endpoint: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let process = std::process::id();
    let moment = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_micros());
    format!("dynamodb:test-{process}-{moment}-{count}?region=eu-central-1&endpoint={endpoint}")
}

/// The address of a fresh table, made.
pub async fn fresh_table(endpoint: &str) -> String {
    let url = fresh_url(endpoint);
    let made = DynamoStore::create_table(&url).await;
    made.expect("a table");
    url
}

/// The hands of somebody with every right to a table: a client, and the table's name.
pub fn admin(url: &str) -> (Client, String) {
    let (table, options) = url.split_once('?').expect("options");
    let endpoint = options.split("endpoint=").nth(1).expect("an endpoint");
    let http = aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https();
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(http)
        .region(Region::new("eu-central-1"))
        .endpoint_url(endpoint)
        .credentials_provider(Credentials::new("admin", "admin", None, None, "made up"))
        .build();
    let table = table.trim_start_matches("dynamodb:").to_owned();
    (Client::from_conf(config), table)
}

struct Server {
    endpoint: String,
    // Closed when this process ends, however it ends.
    _guard: Option<(Child, ChildStdin)>,
}

impl Server {
    fn find() -> Result<Self, String> {
        if let Ok(endpoint) = std::env::var("OPERATORS_TEST_DYNAMODB_ENDPOINT") {
            return Ok(Self {
                endpoint,
                _guard: None,
            });
        }
        let program = installed()?;
        // Somebody may take the port between our look and the server's start.
        for _ in 0..3 {
            if let Some(server) = Self::start(&program)? {
                return Ok(server);
            }
        }
        Err("it does not answer".to_owned())
    }

    fn start(program: &Path) -> Result<Option<Self>, String> {
        let in_words = |error: std::io::Error| error.to_string();
        let listener = TcpListener::bind("127.0.0.1:0").map_err(in_words)?;
        let port = listener.local_addr().map_err(in_words)?.port();
        drop(listener);
        let mut child = Command::new("sh")
            .args(["-c", GUARD, "guard"])
            .arg(program)
            .args(["serve", "--log", "quiet", "--port", &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(in_words)?;
        let stdin = child.stdin.take().ok_or("no pipe to be had")?;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            if answers(port) {
                return Ok(Some(Self {
                    endpoint: format!("http://127.0.0.1:{port}"),
                    _guard: Some((child, stdin)),
                }));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(stdin);
        drop(child.wait());
        Ok(None)
    }
}

fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
        return false;
    };
    let asked = stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let mut answer = [0; 5];
    asked.is_ok() && stream.read_exact(&mut answer).is_ok() && &answer == b"HTTP/"
}

/// The emulator's program, installed if it is not there yet.
fn installed() -> Result<PathBuf, String> {
    let in_words = |error: std::io::Error| error.to_string();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools");
    let program = root.join("bin/dynoxide");
    std::fs::create_dir_all(&root).map_err(in_words)?;
    // One of many test processes installs, the others wait for it.
    let lock = File::create(root.join("dynoxide.lock")).map_err(in_words)?;
    lock.lock().map_err(in_words)?;
    if program.exists() {
        return Ok(program);
    }
    eprintln!("installing {CRATE} {VERSION} into .tools (once, some minutes)");
    let installed = Command::new(env!("CARGO"))
        .args(["install", CRATE, "--version", VERSION, "--locked"])
        .args(["--no-default-features", "--features"])
        .args(["native-sqlite,http-server,cli", "--root"])
        .arg(&root)
        .env_remove("CARGO_TARGET_DIR")
        .stdout(Stdio::null())
        .status()
        .map_err(in_words)?;
    if installed.success() && program.exists() {
        Ok(program)
    } else {
        Err(format!("`cargo install {CRATE}` failed: {installed}"))
    }
}

/// A table of its own. Its handles are clones, so they have watched from the start what any of them
/// saw: a handle of another process would first have to watch for a lease.
#[derive(Debug)]
pub struct DynamoBench {
    endpoint: Option<&'static str>,
    store: OnceCell<(String, DynamoStore)>,
}

impl DynamoBench {
    /// A table to be made on first use.
    pub fn fresh() -> Self {
        Self {
            endpoint: endpoint(),
            store: OnceCell::new(),
        }
    }

    /// Its address.
    pub async fn url(&self) -> &str {
        &self.made().await.0
    }

    async fn made(&self) -> &(String, DynamoStore) {
        let made = self.store.get_or_init(|| async {
            let url = fresh_table(self.endpoint.expect("a server")).await;
            let store = DynamoStore::connect(&url).await.expect("connects");
            (url, store)
        });
        made.await
    }
}

#[async_trait]
impl Bench for DynamoBench {
    fn missing(&self) -> Option<&str> {
        self.endpoint
            .is_none()
            .then_some("there is no DynamoDB-compatible server")
    }

    async fn open(&self) -> Arc<dyn DurableExec> {
        Arc::new(self.made().await.1.clone())
    }

    fn unit(&self) -> Duration {
        Duration::from_millis(250)
    }

    async fn wait(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}
