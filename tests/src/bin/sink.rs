//! The outside world in a process of its own: takes requests, changes "the world", keeps the log.
//!
//! It prints its port, and ends when its standard input does, so it never outlives its test. An
//! argument names a file to append the log to.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use operators_tests::sink::{self, Behaviour, Hit, Then};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The longest head of a request; ours are a few hundred bytes.
const HEAD_MAX: usize = 64 * 1024;

#[derive(Debug)]
struct Sink {
    start: Instant,
    world: Mutex<World>,
}

#[derive(Debug, Default)]
struct World {
    hits: Vec<Hit>,
    /// The first result of each honoured key.
    honoured: HashMap<String, Value>,
    /// Behaviours for requests that ask for none.
    next: VecDeque<Behaviour>,
    file: Option<File>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("{}", listener.local_addr()?.port());
    std::thread::spawn(|| {
        // Whatever ends the wait, the test is gone.
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        std::process::exit(0);
    });
    let file = match std::env::args_os().nth(1) {
        Some(path) => Some(OpenOptions::new().create(true).append(true).open(path)?),
        None => None,
    };
    let sink = Arc::new(Sink {
        start: Instant::now(),
        world: Mutex::new(World {
            file,
            ..World::default()
        }),
    });
    loop {
        let (stream, _) = listener.accept().await?;
        let sink = Arc::clone(&sink);
        tokio::spawn(async move {
            // A caller that goes away half-way is what this program is for.
            drop(sink.serve(stream).await);
        });
    }
}

#[derive(Clone)]
struct Request {
    method: String,
    path: String,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> String {
        self.headers.get(name).cloned().unwrap_or_default()
    }

    /// A value of the query, as it stands.
    fn query(&self, name: &str) -> Option<&str> {
        let (_, query) = self.path.split_once('?')?;
        query
            .split('&')
            .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }
}

impl Sink {
    async fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let request = read_request(&mut stream).await?;
        let path = request.path.split('?').next().unwrap_or_default();
        match (request.method.as_str(), path) {
            ("POST", path) if path.starts_with("/apply") => self.apply(stream, &request).await,
            ("POST", "/mcp") => self.mcp(stream, request).await,
            ("GET", "/log") => {
                let log = json!(self.world().hits);
                answer(&mut stream, 200, &log).await
            }
            ("GET", "/seen") => {
                let seen = self.seen(request.query("key").unwrap_or_default());
                answer(&mut stream, 200, &seen).await
            }
            ("POST", "/behave") => {
                let count = request.query("count").and_then(|count| count.parse().ok());
                let behaviour = request.query("do").and_then(Behaviour::parse);
                let (Some(count), Some(behaviour)) = (count, behaviour) else {
                    return answer(&mut stream, 400, &json!({"error": "what?"})).await;
                };
                let wishes = std::iter::repeat_n(behaviour, count);
                self.world().next.extend(wishes);
                answer(&mut stream, 200, &json!({})).await
            }
            _ => answer(&mut stream, 404, &json!({"error": "no such place"})).await,
        }
    }

    async fn apply(&self, mut stream: TcpStream, request: &Request) -> std::io::Result<()> {
        let (sequence, behaviour) = self.arrive(request);
        tokio::time::sleep(behaviour.before).await;
        let result = if behaviour.applies() {
            self.land(sequence, request)
        } else {
            json!({"error": "the sink was told to say no"})
        };
        tokio::time::sleep(behaviour.after).await;
        match behaviour.then {
            // Noted first: the caller may act as soon as it has its answer, and its next request
            // must not seem to overlap this one.
            Then::Answer => {
                self.leave(sequence, Some(behaviour.status));
                answer(&mut stream, behaviour.status, &result).await
            }
            Then::Close => {
                self.leave(sequence, None);
                Ok(())
            }
            Then::Reset => {
                self.leave(sequence, None);
                stream.set_zero_linger()
            }
            Then::Truncate => {
                self.leave(sequence, None);
                stream.write_all(&head(200, 90)).await?;
                stream.write_all(b"{\"effect\":").await?;
                stream.shutdown().await
            }
            Then::Garble => {
                self.leave(sequence, Some(200));
                stream.write_all(&head(200, 6)).await?;
                stream.write_all(b"<html>").await?;
                stream.shutdown().await
            }
            Then::Redirect => {
                self.leave(sequence, Some(302));
                let lines = "HTTP/1.1 302 x\r\nlocation: /apply\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                stream.write_all(lines.as_bytes()).await?;
                stream.shutdown().await
            }
            Then::Dribble => {
                stream.write_all(&head(200, 1_000_000)).await?;
                let told = async {
                    while stream.write_all(b" ").await.is_ok() {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                };
                told.await;
                self.leave(sequence, None);
                Ok(())
            }
            Then::Flood => {
                stream.write_all(&head(200, 1 << 40)).await?;
                let much = vec![b'x'; 64 * 1024];
                while stream.write_all(&much).await.is_ok() {}
                self.leave(sequence, None);
                Ok(())
            }
            Then::Hang => {
                // Nothing more comes from the caller, so this ends when it leaves.
                let gone = stream.read_to_end(&mut Vec::new()).await;
                self.leave(sequence, None);
                gone.map(drop)
            }
        }
    }

    /// A server of the Model Context Protocol with one tool. It is told the order's number, from
    /// which the test's plan makes key and entity, and the downstream key; it always answers.
    async fn mcp(&self, mut stream: TcpStream, mut request: Request) -> std::io::Result<()> {
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "sink", "version": "1"},
            }),
            "tools/list" => json!({
                "tools": [{"name": "orders.hold", "inputSchema": {"type": "object"}}],
            }),
            "tools/call" => {
                let params = &message["params"];
                let order = params["arguments"]["order"].as_u64().unwrap_or_default();
                let downstream = &params["_meta"]["operators/idempotency-key"];
                let told = [
                    (sink::KEY_HEADER, format!("key-{order}")),
                    (sink::ENTITY_HEADER, format!("order-{}", order % 2)),
                    (
                        sink::DOWNSTREAM_HEADER,
                        downstream.as_str().unwrap_or_default().to_owned(),
                    ),
                ];
                let told = told.map(|(name, text)| (name.to_owned(), text));
                request.headers.extend(told);
                let (sequence, _) = self.arrive(&request);
                let landed = self.land(sequence, &request);
                self.leave(sequence, Some(200));
                json!({"content": [], "structuredContent": landed})
            }
            // A notice.
            _ => return answer(&mut stream, 202, &json!({})).await,
        };
        let message = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        answer(&mut stream, 200, &message).await
    }

    fn arrive(&self, request: &Request) -> (u64, Behaviour) {
        let arrived_ns = self.now();
        let mut world = self.world();
        let sequence = u64::try_from(world.hits.len()).expect("few hits");
        world.hits.push(Hit {
            sequence,
            tenant: request.header(sink::TENANT_HEADER),
            entity: request.header(sink::ENTITY_HEADER),
            key: request.header(sink::KEY_HEADER),
            downstream_key: request.header(sink::DOWNSTREAM_HEADER),
            process: request.header(sink::PROCESS_HEADER),
            arrived_ns,
            applied_ns: None,
            is_replay: false,
            left_ns: None,
            status: None,
        });
        world.note(sequence);
        let wish = request.header(sink::BEHAVE_HEADER);
        let wish = Some(wish).filter(|wish| !wish.is_empty());
        let behaviour = match wish {
            Some(wish) => Behaviour::parse(&wish).expect("a known behaviour"),
            None => world.next.pop_front().unwrap_or_default(),
        };
        (sequence, behaviour)
    }

    /// The effect. An honoured key has its first result again.
    fn land(&self, sequence: u64, request: &Request) -> Value {
        let applied_ns = self.now();
        let honoured = request.headers.get(sink::HONOURED_HEADER);
        let mut world = self.world();
        let first = honoured.and_then(|key| world.honoured.get(key).cloned());
        let result = first
            .clone()
            .unwrap_or_else(|| json!({"effect": sequence, "status": "held"}));
        if let (None, Some(key)) = (&first, honoured) {
            world.honoured.insert(key.clone(), result.clone());
        }
        let hit = world.hit(sequence);
        hit.applied_ns = Some(applied_ns);
        hit.is_replay = first.is_some();
        world.note(sequence);
        result
    }

    fn leave(&self, sequence: u64, status: Option<u16>) {
        let left_ns = self.now();
        let mut world = self.world();
        let hit = world.hit(sequence);
        hit.left_ns = Some(left_ns);
        hit.status = status;
        world.note(sequence);
    }

    /// What a vendor can say about a downstream key.
    fn seen(&self, downstream_key: &str) -> Value {
        let world = self.world();
        let mut hits = world
            .hits
            .iter()
            .filter(|hit| hit.downstream_key == downstream_key)
            .peekable();
        let arrived = hits.peek().is_some();
        let applied = hits.find(|hit| hit.is_effect());
        let result =
            applied.map(|hit| json!({"effect": hit.sequence, "status": "held", "probed": true}));
        json!({"arrived": arrived, "applied": applied.is_some(), "result": result})
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("the sink does not panic")
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).expect("a short test")
    }
}

impl World {
    fn hit(&mut self, sequence: u64) -> &mut Hit {
        let index = usize::try_from(sequence).expect("few hits");
        &mut self.hits[index]
    }

    /// Appends the hit as it is now; of several lines of one hit the last one counts.
    fn note(&mut self, sequence: u64) {
        let index = usize::try_from(sequence).expect("few hits");
        if let Some(file) = &mut self.file {
            let line = serde_json::to_string(&self.hits[index]).expect("a hit is JSON");
            writeln!(file, "{line}").expect("the log can be written");
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> std::io::Result<Request> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if bytes.len() > HEAD_MAX || stream.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::Error::other("no request"));
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = headers
        .get("content-length")
        .and_then(|length| length.parse().ok())
        .unwrap_or(0);
    while bytes.len() < head_end + 4 + length {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::Error::other("half a request"));
        }
    }
    Ok(Request {
        method: first.next().unwrap_or_default().to_owned(),
        path: first.next().unwrap_or_default().to_owned(),
        headers,
        body: bytes.split_off(head_end + 4),
    })
}

/// The head of an answer that promises that many bytes of JSON.
fn head(status: u16, length: u64) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n"
    )
    .into_bytes()
}

async fn answer(stream: &mut TcpStream, status: u16, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    stream.write_all(&head(status, body.len() as u64)).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}
