//! Behind a pooler that shares server connections by transaction.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use operators_tests::conformance::desk::{again, applied, ask};
use operators_tests::postgres::{Database, as_server, install, own_server};
use tempfile::TempDir;

use crate::common::{End, desk, drive};

/// A pooler, gone with this value.
struct Pooler {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Pooler {
    fn before(server: u16) -> Option<Self> {
        let program = Path::new("/usr/sbin/pgbouncer");
        if !program.exists() {
            install("pgbouncer");
        }
        if !program.exists() {
            assert!(std::env::var_os("CI").is_none(), "no pgbouncer");
            eprintln!("skipped: no pgbouncer; install Debian's package of that name");
            return None;
        }
        let folder = TempDir::new().expect("a folder");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("a port").port();
        drop(listener);
        let file = folder.path().join("pgbouncer.ini");
        // Three server connections for everybody: statements of one client land on any of them.
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={server} user=postgres\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = any\npool_mode = transaction\ndefault_pool_size = 3\n\
             max_client_conn = 200\nserver_round_robin = 1\n"
        );
        std::fs::write(&file, text).expect("writes");
        let mut readable = Command::new("chmod");
        readable.args(["-R", "a+rX"]).arg(folder.path());
        assert!(readable.status().expect("chmod").success());
        let mut command = as_server(program);
        let child = command
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let pooler = Self {
            child,
            port,
            _folder: folder,
        };
        for _ in 0..200 {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(pooler);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the pooler does not answer");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_by_transaction_may_stand_in_between() {
    let Some(server) = own_server(&["fsync=off"]) else {
        return;
    };
    let Some(pooler) = Pooler::before(server.port()) else {
        return;
    };
    let database = Database::fresh(&server.url("postgres")).await;
    let direct = database.url();
    let place = format!(":{}/", server.port());
    let url = direct.replace(&place, &format!(":{}/", pooler.port));
    let desks = [desk(&url).await, desk(&url).await, desk(&url).await];

    // New actions on shared entities, by many callers: batches, locks and queues.
    let callers: Vec<_> = (0..60_usize)
        .map(|n| {
            let desk = desks[n % 3].clone();
            let claim = ask(&format!("e-{}", n % 12), &format!("k-{n}"));
            tokio::spawn(async move { drive(&desk, &claim).await.expect("an end") })
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.await.expect("no panic"), End::Ran);
    }
    let flood = ask("order", "hold");
    let callers: Vec<_> = (0..60_usize)
        .map(|n| {
            let (desk, claim) = (desks[n % 3].clone(), again(&flood));
            tokio::spawn(async move { drive(&desk, &claim).await.expect("an end") })
        })
        .collect();
    let mut ran = 0;
    for caller in callers {
        ran += usize::from(caller.await.expect("no panic") == End::Ran);
    }
    assert_eq!(ran, 1);
    desks[0].run(&ask("last", "last"), applied()).await;
    assert_eq!(desks[1].trail().await.len(), 121);
    for desk in &desks {
        desk.store.heartbeat(desk.session).await.expect("beats");
        desk.close().await;
    }
}
