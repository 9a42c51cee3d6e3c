//! The one helper that runs the command, and projects to run it in.

use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use operators::{ActionResult, Receipt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longer than any command here takes on a busy machine; longer means that it hangs.
const PATIENCE: Duration = Duration::from_secs(40);

/// The programs of the package `operators`, built once per test process.
#[derive(Debug)]
pub struct Programs {
    pub operators: PathBuf,
    pub hold_order: PathBuf,
    pub own_engine: PathBuf,
}

pub fn programs() -> &'static Programs {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let built = Command::new(env!("CARGO"))
            .current_dir(top())
            .args(["build", "-q", "-p", "operators", "--bins", "--examples"])
            .arg("--message-format=json")
            .stderr(Stdio::inherit())
            .output()
            .expect("cargo starts");
        assert!(built.status.success(), "the command does not build");
        let messages: Vec<Value> = String::from_utf8(built.stdout)
            .expect("UTF-8")
            .lines()
            .map(|line| serde_json::from_str(line).expect("cargo speaks JSON"))
            .collect();
        let find = |name: &str| {
            let of_name = |message: &&Value| {
                message["target"]["name"] == name && message["executable"].is_string()
            };
            let found = messages.iter().find(of_name);
            let found = found.unwrap_or_else(|| panic!("cargo built no `{name}`"));
            PathBuf::from(found["executable"].as_str().expect("a path"))
        };
        Programs {
            operators: find("operators"),
            hold_order: find("hold_order"),
            own_engine: find("own_engine"),
        }
    })
}

/// The top of the repository.
pub fn top() -> &'static Path {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("a workspace around it")
}

/// The command with these arguments in that folder, in an environment with nothing but `PATH` and
/// a name for the person who decides.
pub fn operators(dir: &Path, args: &[&str]) -> Command {
    in_empty_environment(Command::new(&programs().operators), dir, args)
}

/// The same by way of `sh`, which first does `before`: `umask 000`.
pub fn operators_after(before: &str, dir: &Path, args: &[&str]) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{before}; exec \"$0\" \"$@\"")]);
    shell.arg(&programs().operators);
    in_empty_environment(shell, dir, args)
}

fn in_empty_environment(mut command: Command, dir: &Path, args: &[&str]) -> Command {
    command
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("USER", "auditor");
    command
}

/// How a command ended.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    /// Itself, if it ended with that code.
    #[track_caller]
    pub fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Whether stderr says that, however its lines are broken.
    #[track_caller]
    pub fn tells(&self, words: &str) {
        assert!(self.stderr.contains(words), "no `{words}` in {self:#?}");
    }

    /// stdout as the results of `run --json`: one array and nothing else.
    #[track_caller]
    pub fn results(&self) -> Vec<ActionResult> {
        let results = serde_json::from_str(&self.stdout);
        results.unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// The decisions of the results.
    #[track_caller]
    pub fn decisions(&self) -> Vec<&'static str> {
        let results = self.results();
        results.iter().map(|one| one.decision.as_str()).collect()
    }

    /// stdout as JSON lines.
    #[track_caller]
    pub fn lines<T: DeserializeOwned>(&self) -> Vec<T> {
        let line =
            |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
        self.stdout.lines().map(line).collect()
    }
}

/// A command under way.
#[derive(Debug)]
pub struct Running {
    pub child: Child,
    stdout: JoinHandle<Vec<u8>>,
    stderr: JoinHandle<Vec<u8>>,
}

impl Running {
    pub fn start(command: &mut Command, stdin: Option<&[u8]>) -> Self {
        let spawned = command
            .stdin(if stdin.is_some() {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = spawned.expect("the command starts");
        if let (Some(text), Some(mut pipe)) = (stdin, child.stdin.take()) {
            let text = text.to_owned();
            // It may leave without reading all of it.
            std::thread::spawn(move || drop(pipe.write_all(&text)));
        }
        let stdout = read_all(child.stdout.take().expect("piped"));
        let stderr = read_all(child.stderr.take().expect("piped"));
        Self {
            child,
            stdout,
            stderr,
        }
    }

    /// Waits for its end, for as long as a test may take.
    pub fn end(mut self) -> Said {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                break status;
            }
            if start.elapsed() > PATIENCE {
                self.child.kill().expect("a child of ours");
                panic!("the command hangs");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let text = |bytes: JoinHandle<Vec<u8>>| {
            String::from_utf8(bytes.join().expect("a reader")).expect("UTF-8")
        };
        Said {
            code: status.code(),
            stdout: text(self.stdout),
            stderr: text(self.stderr),
        }
    }
}

fn read_all(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("a pipe");
        bytes
    })
}

/// Runs a command to its end.
pub fn finish(command: &mut Command) -> Said {
    Running::start(command, None).end()
}

/// Runs a command whose reader has left before it says anything; its exit code.
pub fn unread(command: &mut Command) -> Option<i32> {
    let spawned = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = spawned.expect("the command starts");
    drop(child.stdout.take());
    child.wait().expect("a child of ours").code()
}

/// A project of its own, gone with this handle.
#[derive(Debug)]
pub struct Project {
    dir: TempDir,
}

/// The policy that lets everything run.
pub const ALLOW_ALL: &str =
    "policy = 'all'\nversion = 1\n[[rule]]\nname = 'everything'\ndecision = 'ALLOW'\n";

impl Project {
    /// An empty folder.
    pub fn empty() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        Self { dir }
    }

    /// What `operators init` writes.
    pub fn example() -> Self {
        let project = Self::empty();
        project.run(&["init"]).ended(0);
        project
    }

    /// A project of that configuration in which everything is allowed.
    pub fn with(config: &str) -> Self {
        let project = Self::empty();
        project.write("operators.toml", config);
        project.write("policies/all.toml", ALLOW_ALL);
        project
    }

    /// One shop, a file with the tool `orders.hold`.
    pub fn with_file() -> Self {
        Self::with(FILE_SHOP)
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
        std::fs::write(path, text).expect("writable");
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("a file")
    }

    /// Replaces a piece of a file, which must be there.
    pub fn edit(&self, name: &str, old: &str, new: &str) {
        let text = self.read(name);
        assert!(text.contains(old), "no `{old}` in {text}");
        self.write(name, text.replace(old, new));
    }

    /// The lines of `shop.jsonl`: what really happened.
    pub fn effects(&self) -> Vec<Value> {
        match std::fs::read_to_string(self.path("shop.jsonl")) {
            Ok(text) => {
                let lines = text.lines();
                lines
                    .map(|line| serde_json::from_str(line).expect("JSON"))
                    .collect()
            }
            Err(_) => Vec::new(),
        }
    }

    /// Whether neither a store nor an effect came to be.
    #[track_caller]
    pub fn is_untouched(&self) {
        assert!(
            !self.path(".operators/store.db").exists(),
            "a store was made"
        );
        assert!(!self.path("shop.jsonl").exists(), "an effect happened");
    }

    pub fn command(&self, args: &[&str]) -> Command {
        operators(self.dir(), args)
    }

    pub fn run(&self, args: &[&str]) -> Said {
        finish(&mut self.command(args))
    }

    /// `run --once --json --plan -` with that plan.
    pub fn plan(&self, plan: &Value) -> Said {
        self.run_with_stdin(
            &["run", "--once", "--json", "--plan", "-"],
            plan.to_string(),
        )
    }

    pub fn run_with_stdin(&self, args: &[&str], stdin: impl AsRef<[u8]>) -> Said {
        Running::start(&mut self.command(args), Some(stdin.as_ref())).end()
    }

    /// Every receipt, oldest first.
    pub fn receipts(&self) -> Vec<Receipt> {
        self.run(&["receipts", "export"]).ended(0).lines()
    }
}

const FILE_SHOP: &str = "
tenant = 'acme'
[connectors.shop]
kind = 'file'
path = 'shop.jsonl'
[connectors.shop.tools.'orders.hold']
";

/// `shop:orders.hold` on an order's own entity, under the key `ORDER:hold`.
pub fn hold(order: &str) -> Value {
    action("orders.hold", order, json!({ "order": order }))
}

/// Any tool of `shop` on an order's own entity, under the key `ORDER:VERB`.
pub fn action(tool: &str, order: &str, args: impl Into<Value>) -> Value {
    let verb = tool.rsplit('.').next().expect("a word");
    json!({
        "connector": "shop",
        "tool": tool,
        "args": args.into(),
        "entity_key": order,
        "idempotency_key": format!("{order}:{verb}"),
    })
}
