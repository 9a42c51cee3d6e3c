//! A proxy before a server: sees every request by its name, and delays, loses or answers it on cue.
//!
//! Owns what can happen to a request on its way; `speech` owns where a message ends and what it is
//! called. It must not know who speaks, nor why.

mod speech;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use speech::{Side, Speech};

/// What happens to one request.
pub enum Fate {
    /// It is handed on, and answered.
    Pass,
    /// As [`Pass`](Self::Pass), that much later.
    Delay(Duration),
    /// It never arrives; the connection is reset.
    LoseRequest,
    /// It is handed on and the connection is reset at once: nobody hears whether it was done.
    HangUp,
    /// It is done, and the connection is reset instead of its answer.
    LoseAnswer,
    /// It is handed on, and nothing ever comes back on a connection that stays open.
    Silence,
    /// It never arrives, and the connection stays open at both its ends.
    Void,
    /// It never arrives, and this is answered in the server's place.
    Answer(Vec<u8>),
    /// It is done, this comes instead of its answer, and the connection ends.
    AnswerInstead(Vec<u8>),
    /// It is handed on, and then this happens.
    Then(Box<dyn FnOnce() + Send>),
}

impl fmt::Debug for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "Pass",
            Self::Delay(_) => "Delay",
            Self::LoseRequest => "LoseRequest",
            Self::HangUp => "HangUp",
            Self::LoseAnswer => "LoseAnswer",
            Self::Silence => "Silence",
            Self::Void => "Void",
            Self::Answer(_) => "Answer",
            Self::AnswerInstead(_) => "AnswerInstead",
            Self::Then(_) => "Then",
        })
    }
}

type Rule = Box<dyn FnMut(&str) -> Fate + Send>;
type Change = Box<dyn FnMut(&mut [u8]) + Send>;

#[derive(Default)]
struct State {
    seen: Vec<String>,
    rule: Option<Rule>,
    change: Option<fn(&mut [u8])>,
    change_answer: Option<Change>,
}

/// A proxy on a port of its own, in a thread of its own; it ends with this handle.
pub struct Proxy {
    state: Arc<Mutex<State>>,
    port: u16,
    url: String,
    // Dropped, it ends the thread.
    _end: oneshot::Sender<()>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = &self.port;
        f.debug_struct("Proxy")
            .field("port", port)
            .finish_non_exhaustive()
    }
}

impl Proxy {
    /// Before the server of that URL: a store's, or `http://HOST:PORT`.
    pub fn before(url: &str) -> Self {
        let (speech, place) = Speech::of(url);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (end, ended) = oneshot::channel::<()>();
        let state = Arc::<Mutex<State>>::default();
        let (shared, server) = (Arc::clone(&state), speech.with_port(place));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                tokio::select! {
                    () = listen(listener, server, speech, shared) => {}
                    _ = ended => {}
                }
            });
        });
        Self {
            state,
            port,
            url: url.replacen(place, &format!("127.0.0.1:{port}"), 1),
            _end: end,
        }
    }

    /// Where it listens, on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's URL by way of this proxy.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What was asked since the last time, by name.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.state).seen)
    }

    /// From now on every request's fate is what `rule` says, given its name.
    pub fn rule(&self, rule: impl FnMut(&str) -> Fate + Send + 'static) {
        lock(&self.state).rule = Some(Box::new(rule));
    }

    /// The next requests of that name meet these fates.
    pub fn next(&self, name: &'static str, fates: impl IntoIterator<Item = Fate>) {
        let mut fates: VecDeque<Fate> = fates.into_iter().collect();
        self.rule(move |seen| {
            let fate = (seen == name).then(|| fates.pop_front()).flatten();
            fate.unwrap_or(Fate::Pass)
        });
    }

    /// From now on every request is changed like this on its way.
    pub fn change(&self, change: fn(&mut [u8])) {
        lock(&self.state).change = Some(change);
    }

    /// From now on every answer is changed like this on its way.
    pub fn change_answers(&self, change: impl FnMut(&mut [u8]) + Send + 'static) {
        lock(&self.state).change_answer = Some(Box::new(change));
    }
}

async fn listen(listener: TcpListener, server: String, speech: Speech, state: Arc<Mutex<State>>) {
    listener.set_nonblocking(true).expect("a socket");
    let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
    while let Ok((client, _)) = listener.accept().await {
        let (state, server) = (Arc::clone(&state), server.clone());
        tokio::spawn(async move {
            // A connection that breaks is part of the game.
            serve(client, &server, speech, &state).await.ok();
        });
    }
}

async fn serve(
    client: TcpStream,
    server: &str,
    speech: Speech,
    state: &Mutex<State>,
) -> io::Result<()> {
    let mut client = End::new(client, speech, Side::Client)?;
    let server = TcpStream::connect(server).await?;
    let mut server = End::new(server, speech, Side::Server)?;
    loop {
        tokio::select! {
            message = client.message() => {
                let Some(message) = message? else {
                    return Ok(());
                };
                if let Some(name) = speech.request_name(&message) {
                    ask(&mut client, &mut server, state, &name, message).await?;
                } else {
                    server.stream.write_all(&message).await?;
                }
            }
            message = server.message() => {
                let Some(mut message) = message? else {
                    return Ok(());
                };
                if let Some(change) = &mut lock(state).change_answer {
                    change(&mut message);
                }
                client.stream.write_all(&message).await?;
            }
        }
    }
}

/// Lets a request meet its fate; an error ends the connection.
async fn ask(
    client: &mut End,
    server: &mut End,
    state: &Mutex<State>,
    name: &str,
    mut message: Vec<u8>,
) -> io::Result<()> {
    let fate = {
        let mut state = lock(state);
        state.seen.push(name.to_owned());
        if let Some(change) = state.change {
            change(&mut message);
        }
        state.rule.as_mut().map_or(Fate::Pass, |rule| rule(name))
    };
    match fate {
        Fate::Pass => server.stream.write_all(&message).await,
        Fate::Delay(pause) => {
            tokio::time::sleep(pause).await;
            server.stream.write_all(&message).await
        }
        Fate::LoseRequest => client.reset(),
        Fate::HangUp => {
            server.stream.write_all(&message).await?;
            client.reset()
        }
        Fate::LoseAnswer => {
            server.stream.write_all(&message).await?;
            server.answer().await?;
            client.reset()
        }
        Fate::AnswerInstead(other) => {
            server.stream.write_all(&message).await?;
            server.answer().await?;
            client.stream.write_all(&other).await?;
            Err(io::Error::other("ended"))
        }
        Fate::Silence => {
            server.stream.write_all(&message).await?;
            std::future::pending().await
        }
        Fate::Void => std::future::pending().await,
        Fate::Answer(answer) => client.stream.write_all(&answer).await,
        Fate::Then(deed) => {
            server.stream.write_all(&message).await?;
            deed();
            Ok(())
        }
    }
}

/// One end of a connection, and what came from it that is no whole message yet.
struct End {
    stream: TcpStream,
    speech: Speech,
    side: Side,
    rest: Vec<u8>,
    is_greeted: bool,
}

impl End {
    fn new(stream: TcpStream, speech: Speech, side: Side) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            speech,
            side,
            rest: Vec::new(),
            is_greeted: false,
        })
    }

    /// The next whole message; none once the other has left. Dropped half-way, nothing is lost.
    async fn message(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let is_first = !self.is_greeted && matches!(self.side, Side::Client);
            if let Some(length) = self.speech.message_length(&self.rest, is_first) {
                let message: Vec<u8> = self.rest.drain(..length).collect();
                if is_first && self.speech.wants_encryption(&message) {
                    // There is none to be had here, which the protocol lets one say.
                    self.stream.write_all(b"N").await?;
                    continue;
                }
                self.is_greeted = true;
                return Ok(Some(message));
            }
            if self.stream.read_buf(&mut self.rest).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Waits for the whole answer to the last request.
    async fn answer(&mut self) -> io::Result<()> {
        while let Some(answer) = self.message().await? {
            if self.speech.ends_an_answer(&answer) {
                break;
            }
        }
        Ok(())
    }

    /// Ends the connection as a machine does that knows nothing of it any more.
    fn reset(&self) -> io::Result<()> {
        self.stream.set_zero_linger()?;
        Err(io::Error::other("reset"))
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("no rule panics")
}
