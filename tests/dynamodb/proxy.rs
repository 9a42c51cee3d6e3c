//! A proxy before the server: counts requests, and loses, refuses or changes them on cue.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What happens to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It is answered.
    Pass,
    /// It is done, and its answer is lost.
    LoseAnswer,
    /// It never arrives.
    LoseRequest,
    /// It is refused with this status and error.
    Refuse(u16, &'static str),
}

type Rule = Box<dyn FnMut(&str) -> Fate + Send>;

#[derive(Default)]
struct State {
    seen: Vec<String>,
    rule: Option<Rule>,
    /// Whether request tokens are made useless, as after the ten minutes they are good for.
    forgets_tokens: bool,
}

/// A proxy on a port of its own.
#[derive(Clone)]
pub struct Proxy {
    state: Arc<Mutex<State>>,
    pub endpoint: String,
}

impl Proxy {
    pub async fn before(endpoint: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let proxy = Self {
            state: Arc::default(),
            endpoint: format!("http://127.0.0.1:{port}"),
        };
        let server = endpoint.trim_start_matches("http://").to_owned();
        let state = Arc::clone(&proxy.state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (state, server) = (Arc::clone(&state), server.clone());
                tokio::spawn(async move {
                    // A connection that breaks is part of the game.
                    serve(client, &server, &state).await.ok();
                });
            }
        });
        proxy
    }

    /// What was asked since the last time.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().expect("whole").seen)
    }

    /// From now on every request's fate is what `rule` says, given its operation.
    pub fn rule(&self, rule: impl FnMut(&str) -> Fate + Send + 'static) {
        self.state.lock().expect("whole").rule = Some(Box::new(rule));
    }

    /// The next requests of that operation meet these fates.
    pub fn next(&self, operation: &'static str, fates: impl IntoIterator<Item = Fate>) {
        let mut fates: std::collections::VecDeque<Fate> = fates.into_iter().collect();
        self.rule(move |seen| {
            let fate = (seen == operation).then(|| fates.pop_front()).flatten();
            fate.unwrap_or(Fate::Pass)
        });
    }

    /// The server never recognises a request that it has seen before.
    pub fn forget_tokens(&self) {
        self.state.lock().expect("whole").forgets_tokens = true;
    }
}

async fn serve(mut client: TcpStream, server: &str, state: &Mutex<State>) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    let mut upstream = TcpStream::connect(server).await?;
    upstream.set_nodelay(true)?;
    let mut rest = Vec::new();
    loop {
        let Some((head, mut body)) = message(&mut client, &mut rest).await? else {
            return Ok(());
        };
        let operation = operation_of(&head);
        let fate = {
            let mut state = state.lock().expect("whole");
            state.seen.push(operation.clone());
            if state.forgets_tokens {
                forget_token(&mut body);
            }
            state
                .rule
                .as_mut()
                .map_or(Fate::Pass, |rule| rule(&operation))
        };
        if fate == Fate::LoseRequest {
            return Ok(());
        }
        if let Fate::Refuse(status, error) = fate {
            client.write_all(&refusal(status, error)).await?;
            continue;
        }
        upstream.write_all(&head).await?;
        upstream.write_all(&body).await?;
        let mut unread = Vec::new();
        let Some((head, body)) = message(&mut upstream, &mut unread).await? else {
            return Ok(());
        };
        if fate == Fate::LoseAnswer {
            return Ok(());
        }
        client.write_all(&head).await?;
        client.write_all(&body).await?;
    }
}

/// One message: its head and its body, as long as its head says.
async fn message(
    stream: &mut TcpStream,
    rest: &mut Vec<u8>,
) -> std::io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    loop {
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end.map(|end| end + 4) {
            let head = String::from_utf8_lossy(&rest[..end]).to_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.map_or(0, |length| length.trim().parse().expect("digits"));
            if rest.len() >= end + length {
                let mut message: Vec<u8> = rest.drain(..end + length).collect();
                let body = message.split_off(end);
                return Ok(Some((message, body)));
            }
        }
        if stream.read_buf(rest).await? == 0 {
            return Ok(None);
        }
    }
}

fn operation_of(head: &[u8]) -> String {
    let head = String::from_utf8_lossy(head);
    let target = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("x-amz-target").then_some(value)
    });
    let target = target.and_then(|target| target.trim().rsplit_once('.'));
    target.map_or("?", |(_, operation)| operation).to_owned()
}

/// Another token of the same length.
fn forget_token(body: &mut [u8]) {
    const NAME: &[u8] = br#""ClientRequestToken":""#;
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let place = body.windows(NAME.len()).position(|part| part == NAME);
    if let Some(place) = place {
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let start = place + NAME.len();
        body[start..start + 8].copy_from_slice(format!("{count:08}").as_bytes());
    }
}

fn refusal(status: u16, error: &str) -> Vec<u8> {
    let body = match error {
        "TransactionConflict" => {
            let reason = r#"{"Code":"TransactionConflict","Message":"conflict"}"#;
            format!(
                r#"{{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","Message":"cancelled","CancellationReasons":[{reason}]}}"#
            )
        }
        error => format!(
            r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{error}","message":"on purpose"}}"#
        ),
    };
    let length = body.len();
    format!(
        "HTTP/1.1 {status} Refused\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}
