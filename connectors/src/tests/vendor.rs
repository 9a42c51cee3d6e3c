//! A vendor made of plain sockets: it counts what arrives and answers byte for byte as told.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the vendor does after it has read a request.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    /// Sends these bytes and closes.
    Close(Vec<u8>),
    /// Sends these bytes and waits for the next request on the same connection.
    KeepAlive(Vec<u8>),
    /// Sends these bytes, then keeps the connection open for longer than any test waits.
    Hang(Vec<u8>),
    /// Sends these bytes, waits a moment, and resets the connection.
    Reset(Vec<u8>),
}

/// A running vendor. Its threads end with the test process.
#[derive(Debug)]
pub(super) struct Vendor {
    pub(super) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl Vendor {
    /// Answers the n-th request (from 0, over all connections) with `script(n)`.
    pub(super) fn start(script: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::answering(move |n, _| script(n))
    }

    /// Answers the n-th request by what it says.
    pub(super) fn answering(script: impl Fn(usize, &str) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let connections: Arc<AtomicUsize> = Arc::default();
        let script = Arc::new(script);
        let vendor = Self {
            address,
            requests: Arc::clone(&requests),
            connections: Arc::clone(&connections),
        };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                connections.fetch_add(1, Ordering::SeqCst);
                let (script, requests) = (Arc::clone(&script), Arc::clone(&requests));
                std::thread::spawn(move || serve(stream, script.as_ref(), &requests));
            }
        });
        vendor
    }

    /// Answers every request alike.
    pub(super) fn always(reply: Reply) -> Self {
        Self::start(move |_| reply.clone())
    }

    /// The requests so far, whole.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("not poisoned").clone()
    }

    /// How often somebody connected.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// A connector `shop` at this vendor with an opaque tool `do` at `/do`, and more text.
    pub(super) fn config(&self, more: &str) -> String {
        format!(
            "[connectors.shop]\nkind = \"http\"\nbase_url = \"http://{}\"\ntimeout = \"5s\"\n\
             allow_private_addresses = true\n[connectors.shop.tools.do]\npath = \"/do\"\n{more}",
            self.address
        )
    }
}

/// An answer with a marked end.
pub(super) fn answer(status: &str, media: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {media}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A 200 with a JSON body.
pub(super) fn ok(body: &str) -> Vec<u8> {
    answer("200 OK", "application/json", body)
}

fn serve(
    mut stream: TcpStream,
    script: &(impl Fn(usize, &str) -> Reply + ?Sized),
    requests: &Mutex<Vec<String>>,
) {
    while let Some(request) = peek_request(&mut stream) {
        let length = request.len();
        let nth = {
            let mut requests = requests.lock().expect("not poisoned");
            requests.push(request.clone());
            requests.len() - 1
        };
        let reply = script(nth, &request);
        if let Reply::Reset(bytes) = &reply {
            // Closing while the request lies unread makes the system send a reset.
            drop(stream.write_all(bytes));
            std::thread::sleep(Duration::from_millis(50));
            return;
        }
        stream
            .read_exact(&mut vec![0; length])
            .expect("it was there a moment ago");
        // The client may be gone already; that is its business.
        match reply {
            Reply::Close(bytes) => {
                drop(stream.write_all(&bytes));
                drop(stream.shutdown(Shutdown::Write));
                return;
            }
            Reply::KeepAlive(bytes) => drop(stream.write_all(&bytes)),
            Reply::Hang(bytes) | Reply::Reset(bytes) => {
                drop(stream.write_all(&bytes));
                std::thread::sleep(Duration::from_mins(1));
                return;
            }
        }
    }
}

/// Waits for a whole request and leaves it in the socket.
fn peek_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let length = match stream.peek(&mut bytes) {
            Ok(0) | Err(_) => return None,
            Ok(length) => length,
        };
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let wanted = head
                .lines()
                .find_map(|line| {
                    let line = line.to_ascii_lowercase();
                    line.strip_prefix("content-length: ")?.parse().ok()
                })
                .unwrap_or(0);
            if body.len() >= wanted {
                return Some(text);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
