//! A vendor on loopback: takes one request per connection and answers as a test tells it to.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// One request that reached the vendor.
#[derive(Debug, Clone)]
pub struct Request {
    /// With its query.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(header, _)| header == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// What it does with a request that it has read whole.
#[derive(Debug, Clone)]
pub enum Answer {
    /// That status with that JSON body.
    Json(u16, String),
    /// That status with that text.
    Text(u16, String),
    /// Closes without a word: nobody can know what happened.
    Close,
}

impl Answer {
    /// 200 and nothing special.
    pub fn well() -> Self {
        Self::Json(200, r#"{"status":"held"}"#.to_owned())
    }
}

/// A running vendor.
#[derive(Debug)]
pub struct Vendor {
    port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Vendor {
    /// Answers every request with `answer`, which may also take its time; each connection has a
    /// thread of its own.
    pub fn start(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (Arc::clone(&requests), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                std::thread::spawn(move || serve(&stream, &seen, &*answer));
            }
        });
        Self { port, requests }
    }

    /// Answers every request alike.
    pub fn always(answer: Answer) -> Self {
        Self::start(move |_| answer.clone())
    }

    /// A vendor that answers well, each time only once the test lets it.
    pub fn gated() -> (Self, Gate) {
        let (open, wait) = channel();
        let wait = Mutex::new(wait);
        let vendor = Self::start(move |_| {
            let wait: &Mutex<Receiver<()>> = &wait;
            // An error means that the test is over.
            let _open = wait.lock().expect("no panic").recv();
            Answer::well()
        });
        (vendor, Gate(open))
    }

    /// Every request so far, in order of arrival.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("no panic").clone()
    }

    /// Waits until that many requests have come.
    pub fn wait_for(&self, count: usize) {
        let start = Instant::now();
        while self.requests().len() < count {
            assert!(start.elapsed() < Duration::from_secs(20), "no request came");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A configuration with this vendor as `shop`.
    pub fn config(&self) -> String {
        config(self.port)
    }
}

/// Lets a gated vendor answer.
#[derive(Debug)]
pub struct Gate(Sender<()>);

impl Gate {
    pub fn open(&self) {
        self.0.send(()).expect("the vendor waits");
    }
}

/// A port that nobody listens on.
pub fn closed_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// A configuration with `shop` at that port: `orders.hold` is opaque, `orders.release` is opaque
/// and lands at once or never, `orders.refund` is keyed, `orders.get` reads.
pub fn config(port: u16) -> String {
    format!(
        "tenant = 'acme'
[connectors.shop]
kind = 'http'
base_url = 'http://127.0.0.1:{port}'
timeout = '10s'
allow_private_addresses = true
[connectors.shop.tools.'orders.hold']
path = '/hold'
[connectors.shop.tools.'orders.release']
path = '/release'
timeout = '100ms'
max_land = '0s'
[connectors.shop.tools.'orders.refund']
path = '/refund'
effect = 'keyed'
[connectors.shop.tools.'orders.get']
path = '/get'
effect = 'read'
"
    )
}

fn serve(
    stream: &TcpStream,
    seen: &Mutex<Vec<Request>>,
    answer: &(impl Fn(&Request) -> Answer + ?Sized),
) {
    let Some(request) = read(stream) else { return };
    seen.lock().expect("no panic").push(request.clone());
    let (status, kind, body) = match answer(&request) {
        Answer::Json(status, body) => (status, "application/json", body),
        Answer::Text(status, body) => (status, "text/plain", body),
        Answer::Close => return,
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} Said\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n"
    );
    let mut stream = stream;
    // The caller may be gone.
    drop(
        stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body.as_bytes())),
    );
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim().split_once(':') else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, value)| value.parse().expect("a length"));
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = String::from_utf8(body).expect("UTF-8");
    let path = line.split(' ').nth(1)?.to_owned();
    Some(Request {
        path,
        headers,
        body,
    })
}
