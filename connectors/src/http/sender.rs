//! Makes a request once: it follows nothing, repeats nothing that began to leave, uses no proxy.
//!
//! Owns which connection a request rides on, and what is known of one that got no answer. It must
//! not know what an answer means.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HOST, HeaderMap, HeaderValue};
use hyper::{Method, Response, StatusCode, Uri};
use tokio::time::Instant;
use url::{Position, Url};

use operators_kernel::SendPermit;

use crate::http::departure::Departure;
use crate::http::dial::Dialer;
use crate::http::line::Line;

/// How many idle connections are kept.
const IDLE_MAX: usize = 16;

/// For how long: less than the five seconds after which the hastiest common servers close one, so
/// that a request seldom meets a connection that is being closed.
const IDLE_WAIT: Duration = Duration::from_secs(3);

/// What is sent.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Under which terms.
#[derive(Debug)]
pub(crate) struct Terms {
    /// Asked before anything else, and right before each write to the network.
    pub(crate) permit: SendPermit,
    /// From the first look-up of a name to the last byte of the answer.
    pub(crate) within: Option<Duration>,
    /// Whether it may ride on a connection that was used before, and leave it for a later one.
    pub(crate) pooled: bool,
}

/// Why a request got no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Not one byte of it left, and why.
    NotSent(String),
    /// Not one byte of it left, because there was no connection.
    NoConnection {
        /// Host and port.
        to: String,
        /// Why.
        cause: String,
    },
    /// It may have left, and no answer came in time.
    Late,
    /// It may have left, and what became of the connection.
    Broken(String),
}

/// Makes requests, over connections that it keeps for a while.
#[derive(Clone)]
pub(crate) struct Sender(Arc<Inner>);

struct Inner {
    dialer: Dialer,
    /// A std lock: it is held for a look-up, never across an await.
    idle: Mutex<Vec<Idle>>,
}

/// A connection that waits for its next request.
struct Idle {
    origin: String,
    since: Instant,
    line: Line,
}

/// An answer whose body is still to be read.
pub(crate) struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Incoming,
    /// What the body comes over, until it is read.
    line: Option<Line>,
    /// Where the line goes then, if it may be used again.
    home: Option<(Sender, String)>,
    until: Option<Instant>,
}

/// Why an attempt ended without an answer.
enum Stopped {
    /// Before there was a connection.
    Unmade(Unanswered),
    Late,
    Broken(hyper::Error),
}

impl Request {
    pub(crate) fn new(method: Method, url: Url) -> Self {
        Self {
            method,
            url,
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
    }

    /// As it goes over a connection to its own host.
    fn lines(&self) -> Result<hyper::Request<Full<Bytes>>, Stopped> {
        let problem = "its address cannot be sent";
        let unmade = || Stopped::Unmade(Unanswered::NotSent(problem.to_owned()));
        let path = &self.url[Position::BeforePath..Position::AfterQuery];
        let host = &self.url[Position::BeforeHost..Position::AfterPort];
        let mut request = hyper::Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = path.parse::<Uri>().map_err(|_| unmade())?;
        let headers = request.headers_mut();
        headers.insert(HOST, HeaderValue::from_str(host).map_err(|_| unmade())?);
        for (name, value) in &self.headers {
            headers.append(name.clone(), value.clone());
        }
        Ok(request)
    }

    /// With whom a connection can be shared.
    fn origin(&self) -> String {
        self.url[..Position::AfterPort].to_owned()
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&self.0.dialer).finish()
    }
}

impl Sender {
    pub(crate) fn new(dialer: Dialer) -> Self {
        Self(Arc::new(Inner {
            dialer,
            idle: Mutex::default(),
        }))
    }

    /// Makes one request, once. A process that was stopped anywhere on the way sends nothing after
    /// its permit ended, except at the very system call that sends.
    pub(crate) async fn send(&self, request: Request, terms: Terms) -> Result<Answer, Unanswered> {
        let until = terms.within.map(|within| Instant::now() + within);
        let departure = Departure::new(terms.permit);
        let attempt = self.attempt(&request, &departure, terms.pooled);
        // By the time this is judged, nothing can leave any more: the attempt is gone.
        let ended = bounded(until, attempt).await;
        match ended.unwrap_or(Err(Stopped::Late)) {
            Err(stopped) => Err(judged(stopped, &departure, &request.url)),
            Ok((line, answer)) => {
                let (head, body) = answer.into_parts();
                Ok(Answer {
                    status: head.status,
                    headers: head.headers,
                    body,
                    line: Some(line),
                    home: terms.pooled.then(|| (self.clone(), request.origin())),
                    until,
                })
            }
        }
    }

    async fn attempt(
        &self,
        request: &Request,
        departure: &Arc<Departure>,
        pooled: bool,
    ) -> Result<(Line, Response<Incoming>), Stopped> {
        let lines = request.lines()?;
        let not_sent =
            |refused: io::Error| Stopped::Unmade(Unanswered::NotSent(refused.to_string()));
        departure.confirm().await.map_err(not_sent)?;
        while pooled && let Some(mut line) = self.take(&request.origin()).await {
            // INVARIANT (sent-once): what began to leave is never sent again. Only a request of
            // which nothing left, because its connection had been closed while it was idle, goes
            // out on another one.
            match line.send(lines.clone(), departure).await {
                Ok(answer) => return Ok((line, answer)),
                Err(_) if !departure.has_left() && departure.refused().is_none() => {}
                Err(error) => return Err(Stopped::Broken(error)),
            }
        }
        let dialled = self.0.dialer.dial(&request.url).await;
        let (wire, carried) = dialled.map_err(Stopped::Unmade)?;
        let mut line = Line::new(wire, carried).await.map_err(Stopped::Broken)?;
        departure.confirm().await.map_err(not_sent)?;
        let answer = line.send(lines, departure).await.map_err(Stopped::Broken)?;
        Ok((line, answer))
    }

    /// A kept connection that still seems to be one.
    async fn take(&self, origin: &str) -> Option<Line> {
        loop {
            let mut line = {
                let mut idle = self.idle();
                idle.retain(|kept| kept.since.elapsed() < IDLE_WAIT);
                let newest = idle.iter().rposition(|kept| kept.origin == origin)?;
                idle.remove(newest).line
            };
            if line.is_free().await {
                return Some(line);
            }
        }
    }

    fn keep(&self, origin: String, line: Line) {
        let mut idle = self.idle();
        idle.retain(|kept| kept.since.elapsed() < IDLE_WAIT);
        if idle.len() < IDLE_MAX {
            let since = Instant::now();
            idle.push(Idle {
                origin,
                since,
                line,
            });
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        // A panic under this lock leaves a list that is still whole.
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answer {
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The next piece of the body; none at its end. The error says what became of "it", the body.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, String> {
        while let Some(line) = &mut self.line {
            match bounded(self.until, line.beside(self.body.frame())).await {
                None => return Err("it did not end in time".to_owned()),
                Some(None) => self.put_back().await,
                Some(Some(Err(error))) => return Err(innermost(&error).to_string()),
                Some(Some(Ok(frame))) => {
                    // What follows a body is nobody's.
                    if let Ok(piece) = frame.into_data() {
                        return Ok(Some(piece));
                    }
                }
            }
        }
        Ok(None)
    }

    async fn put_back(&mut self) {
        if let (Some(mut line), Some((sender, origin))) = (self.line.take(), self.home.take())
            && line.is_free().await
        {
            sender.keep(origin, line);
        }
    }
}

/// What is known of a request without an answer.
fn judged(stopped: Stopped, departure: &Departure, url: &Url) -> Unanswered {
    match (departure.has_left(), departure.refused(), stopped) {
        (false, Some(refused), _) => Unanswered::NotSent(refused.to_owned()),
        (true, Some(refused), _) => Unanswered::Broken(format!("its rest was kept: {refused}")),
        (_, None, Stopped::Unmade(unanswered)) => unanswered,
        (false, None, Stopped::Late) => unconnected(url, "none took it in time"),
        (true, None, Stopped::Late) => Unanswered::Late,
        (false, None, Stopped::Broken(error)) => unconnected(url, innermost(&error)),
        (true, None, Stopped::Broken(error)) => Unanswered::Broken(innermost(&error).to_string()),
    }
}

/// No connection, where to, and why.
pub(crate) fn unconnected(url: &Url, cause: impl fmt::Display) -> Unanswered {
    let host = url.host_str().unwrap_or_default();
    Unanswered::NoConnection {
        to: match url.port_or_known_default() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        },
        cause: cause.to_string(),
    }
}

/// None if the time was over before the work was.
async fn bounded<T>(until: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match until {
        None => Some(work.await),
        Some(until) => tokio::time::timeout_at(until, work).await.ok(),
    }
}

/// The innermost cause: the library's own words around it say less.
pub(crate) fn innermost<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause
}
