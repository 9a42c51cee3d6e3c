//! A program of a `command` tool does not outlive its call, whatever becomes of `operators`.
//!
//! The effect is a line in a file that the program itself writes. The first program takes far longer
//! than its call may; whoever comes after it is quick.

use std::os::unix::process::CommandExt as _;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use operators::Reason;
use serde_json::json;

use crate::support::{Project, Running, action};

const PATIENCE: Duration = Duration::from_mins(1);

/// How long the first program takes.
const SLOW: Duration = Duration::from_secs(6);

/// The call's deadline and `max_land`, and a bit.
const PAST_ITS_TIME: Duration = Duration::from_millis(3_300);

const CONFIG: &str = "tenant = 'acme'\n[connectors.shop]\nkind = 'command'\n\
     [connectors.shop.tools.'orders.hold']\nargv = ['sh', 'hold.sh']\n\
     timeout = '2s'\nmax_land = '1s'\neffect = 'probeable'\n\
     probe = { argv = ['sh', '-c', 'cat > probe; grep -q held effects'], not_applied = '1, 2' }\n";

/// Says that it runs, and where; then takes its time if it is the first.
const HOLD: &str = "echo $$ >> running\n[ -e first ] || { : > first; sleep 6; }\n\
     echo held >> effects\n";

struct Shop(Project);

impl Shop {
    fn new() -> Self {
        let project = Project::with(CONFIG);
        project.write("hold.sh", HOLD);
        Self(project)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path(name)).unwrap_or_default()
    }

    /// Proposes the action, in a process group of its own.
    fn start(&self) -> Running {
        let plan = json!([action("orders.hold", "SO-1", json!({}))]).to_string();
        let mut command = self.0.command(&["run", "--once", "--json", "--plan", "-"]);
        Running::start(command.process_group(0), Some(plan.as_bytes()))
    }

    /// Starts it and waits until its program runs. When that was, and the program's number.
    fn in_the_middle_of_a_call(&self) -> (Running, Instant, Pid) {
        let running = self.start();
        wait_for("the program", || self.read("running").ends_with('\n'));
        let program = self.read("running").trim().parse().expect("a number");
        (running, Instant::now(), Pid::from_raw(program))
    }

    fn effects(&self) -> usize {
        self.read("effects").lines().count()
    }

    /// Proposes the action until it is settled, as somebody does who sees it refused.
    fn settle(&self) {
        wait_for("an end of the doubt", || {
            self.start().end().results().iter().all(|one| one.ok)
        });
    }
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "no {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn pid(running: &Running) -> Pid {
    Pid::from_raw(i32::try_from(running.child.id()).expect("a number"))
}

fn is_running(program: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{program}/stat")).unwrap_or_default();
    // A zombie runs no more.
    let state = stat.rsplit_once(") ");
    state.is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

fn wait_until(moment: Instant) {
    std::thread::sleep(moment.saturating_duration_since(Instant::now()));
}

/// Rules 4.6 and 4.13: `operators` is killed, or stopped, while its program runs. Past deadline and
/// `max_land` the probe's "not applied" is believed, and by then the program has been ended.
#[test]
fn a_program_does_not_outlive_the_call_of_an_operators_that_is_killed_or_stopped() {
    for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
        let shop = Shop::new();
        // So that the next run comes to its probe while the first program would still run.
        let config = shop.read("operators.toml") + "[store]\nlease = '2s'\n";
        shop.0.write("operators.toml", config);
        let (first, since, program) = shop.in_the_middle_of_a_call();
        kill(pid(&first), signal).expect("it is there");
        wait_until(since + PAST_ITS_TIME);
        assert!(!is_running(program), "{signal}: it still runs");
        shop.settle();
        wait_until(since + SLOW + Duration::from_millis(500));
        assert_eq!(shop.effects(), 1, "{signal}");
        assert!(!shop.read("probe").is_empty(), "{signal}: it was asked");
        kill(pid(&first), Signal::SIGKILL).expect("not waited for yet");
        first.end();
    }
}

/// Rule 4.6: a supervisor is in nobody's group but its own, so what a terminal sends to all of
/// `operators` leaves it, and it ends the program.
#[test]
fn a_signal_to_the_whole_group_does_not_reach_the_supervisor() {
    let shop = Shop::new();
    let (first, since, program) = shop.in_the_middle_of_a_call();
    killpg(pid(&first), Signal::SIGKILL).expect("it is there");
    first.end();
    wait_for("the program's end", || !is_running(program));
    assert!(since.elapsed() < SLOW, "it ended by itself");
    shop.settle();
    assert_eq!(shop.effects(), 1);
}

/// Rule 4.6: where the supervisor itself is killed, the living `operators` ends the program.
#[test]
fn a_supervisor_that_is_killed_takes_its_program_with_it() {
    let shop = Shop::new();
    let (first, since, program) = shop.in_the_middle_of_a_call();
    let stat = std::fs::read_to_string(format!("/proc/{program}/stat")).expect("it runs");
    let after_name = stat.rsplit_once(") ").expect("a name").1;
    let parent = after_name.split(' ').nth(1).expect("a parent");
    let parent = Pid::from_raw(parent.parse().expect("a number"));
    assert_ne!(parent, pid(&first));
    // It has let go of the program's streams once it has reported the program's number.
    let stream = format!("/proc/{parent}/fd/1");
    wait_for("report", || {
        std::fs::read_link(&stream).is_ok_and(|to| to.ends_with("null"))
    });
    kill(parent, Signal::SIGKILL).expect("the supervisor is there");
    wait_for("the program's end", || !is_running(program));
    assert!(since.elapsed() < SLOW, "it ended by itself");
    let results = first.end().results();
    assert_eq!(results[0].reason, Some(Reason::InDoubt), "{results:?}");
    shop.settle();
    assert_eq!(shop.effects(), 1);
}

/// A server of a few lines, which takes its time over a call and goes on when its stdin is closed.
const SERVER: &str = r#"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"method":"initialize"'*) answer '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"method":"tools/list"'*) answer '{"tools":[{"name":"orders.hold","inputSchema":{"type":"object"}}]}' ;;
    *'"method":"tools/call"'*) echo $$ >> running; sleep 6; echo held >> effects ;;
  esac
done
"#;

/// Rule 4.6: a server that is a program does not outlive an `operators` that is killed, though it
/// would have gone on by itself.
#[test]
fn an_mcp_server_ends_with_an_operators_that_is_killed() {
    let project = Project::with(
        "tenant = 'acme'\n[connectors.shop]\nkind = 'mcp'\nargv = ['sh', 'server.sh']\n\
         [connectors.shop.tools.'orders.hold']\n",
    );
    project.write("server.sh", SERVER);
    let shop = Shop(project);
    let (first, since, server) = shop.in_the_middle_of_a_call();
    kill(pid(&first), Signal::SIGKILL).expect("it is there");
    first.end();
    wait_for("end of the server", || !is_running(server));
    assert!(since.elapsed() < SLOW, "it ended by itself");
    wait_until(since + SLOW + Duration::from_millis(500));
    assert_eq!(shop.effects(), 0);
}
