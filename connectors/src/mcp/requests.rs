//! The requests to a server behind an address: one for each message, and no call sent twice.
//!
//! Owns the requests, the bound on answers, and what a status means. They are sent as those of the
//! `http` connector are: a call only with its permit, asked before each write. The library's own
//! client reads answers of any size and follows redirects, so it is not used.
//!
//! | status, with a body that is no result | meaning |
//! |---|---|
//! | 404 to a request of a session | the session is forgotten |
//! | 400, 401, 403, 404, 410 | not taken; a new connection may be let in |
//! | other 4xx | not taken |
//! | 408, and everything else that is no success | open |
//!
//! A body that holds a result is the answer whatever its status is, if it is to this very request,
//! and open if that cannot be told, or if it may hold one and cannot be read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, RequestId};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};
use url::Url;

use operators_kernel::SendPermit;

use crate::http::sender::{Answer, Request, Sender, Terms, Unanswered};
use crate::mcp::fault::{Fault, Meaning, first_line};
use crate::mcp::link::permit;
use crate::mcp::message::{self, Refusal};

/// The largest answer taken from a server, all events of one request together.
pub(crate) const ANSWER_BYTES_MAX: usize = 2 * 1024 * 1024;

/// How long a stream that broke off rests before it is asked for again. The library asks at once,
/// which a server that breaks off each time answers some thousand times a second.
const READ_ON_AFTER: Duration = Duration::from_millis(200);

const SESSION_HEADER: &str = "mcp-session-id";
const LAST_EVENT_HEADER: &str = "last-event-id";

/// A client whose answers are bounded.
#[derive(Debug, Clone)]
pub(crate) struct Bounded {
    url: Url,
    sender: Sender,
    place: Arc<str>,
    first: Arc<OnceLock<Fault>>,
    /// Whether the stream of what belongs to no request was asked for.
    is_listening: Arc<AtomicBool>,
}

type WebError = StreamableHttpError<Fault>;

impl Bounded {
    /// The first fault is left in `first`.
    pub(crate) fn new(
        url: &Url,
        place: &str,
        sender: &Sender,
        first: &Arc<OnceLock<Fault>>,
    ) -> Self {
        Self {
            url: url.clone(),
            sender: sender.clone(),
            place: place.into(),
            first: Arc::clone(first),
            is_listening: Arc::default(),
        }
    }

    fn request(
        &self,
        method: Method,
        session: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Request {
        let mut request = Request::new(method, self.url.clone());
        let accepted = HeaderValue::from_static("application/json, text/event-stream");
        request.headers.insert(ACCEPT, accepted);
        insert(&mut request, SESSION_HEADER, session);
        for (name, value) in headers {
            request.headers.append(name, value);
        }
        request
    }

    async fn send(&self, request: Request, permit: SendPermit) -> Result<Answer, Fault> {
        // How long is up to whoever waits.
        let terms = Terms {
            permit,
            within: None,
            pooled: false,
        };
        let place = &self.place;
        let (meaning, told, cause) = match self.sender.send(request, terms).await {
            Ok(answer) => return Ok(answer),
            Err(Unanswered::NotSent(problem)) => {
                return Err(Fault::new(Meaning::NotTaken, problem));
            }
            Err(Unanswered::NoConnection { cause, .. }) => (
                Meaning::NotTaken,
                format!("no connection to {place}"),
                cause,
            ),
            Err(Unanswered::Late) => {
                return Err(Fault::new(
                    Meaning::Open,
                    format!("no answer from {place} in time"),
                ));
            }
            Err(Unanswered::Broken(cause)) => {
                (Meaning::Open, format!("no answer from {place}"), cause)
            }
        };
        Err(Fault::new(meaning, told).quoting(&cause))
    }

    async fn post(
        &self,
        message: &ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Fault> {
        let in_session = session.is_some();
        let mut request = self.request(Method::POST, session.as_deref(), headers);
        let json = HeaderValue::from_static("application/json");
        request.headers.insert(CONTENT_TYPE, json);
        let body = serde_json::to_vec(message);
        let unsaid = |_| Fault::new(Meaning::NotTaken, "the message cannot be written as JSON");
        request.body = body.map_err(unsaid)?.into();
        let answer = self.send(request, permit(message)).await?;
        let status = answer.status();
        let JsonRpcMessage::Request(asked) = message else {
            // A notice of ours: there is nothing to be told.
            return if status.is_success() {
                Ok(StreamableHttpPostResponse::Accepted)
            } else {
                Err(self.fault(status, in_session))
            };
        };
        if status.is_success() {
            self.answer(answer, &asked.id).await
        } else {
            self.refusal(answer, &asked.id, in_session).await
        }
    }

    /// What a success says.
    async fn answer(
        &self,
        answer: Answer,
        id: &RequestId,
    ) -> Result<StreamableHttpPostResponse, Fault> {
        let status = answer.status();
        if matches!(status.as_u16(), 202 | 204) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let session = header(&answer, SESSION_HEADER);
        let media = header(&answer, CONTENT_TYPE.as_str()).unwrap_or_default();
        if is(&media, "text/event-stream") {
            return Ok(StreamableHttpPostResponse::Sse(events(answer), session));
        }
        let open = |problem: &str| {
            let told = format!(
                "{} answered {}, but {problem}",
                self.place,
                in_words(status)
            );
            Fault::new(Meaning::Open, told)
        };
        if !is(&media, "application/json") {
            return Err(open("with another content type than JSON").quoting(first_line(&media)));
        }
        let body = whole(answer).await.map_err(|problem| open(&problem))?;
        match message::answer(&body, id) {
            Ok(message) => Ok(StreamableHttpPostResponse::Json(message, session)),
            Err(problem) => Err(open(&format!("its body cannot be read: {problem}"))),
        }
    }

    /// What anything else than a success says: it may be an answer all the same.
    async fn refusal(
        &self,
        answer: Answer,
        id: &RequestId,
        in_session: bool,
    ) -> Result<StreamableHttpPostResponse, Fault> {
        let status = answer.status();
        let open = |problem: &str| {
            let told = format!(
                "{} answered {}, but {problem}",
                self.place,
                in_words(status)
            );
            Fault::new(Meaning::Open, told)
        };
        let media = header(&answer, CONTENT_TYPE.as_str()).unwrap_or_default();
        if is(&media, "text/event-stream") {
            return Err(open("with a stream of events"));
        }
        if let Some(encoding) = header(&answer, CONTENT_ENCODING.as_str())
            && !encoding.eq_ignore_ascii_case("identity")
        {
            return Err(open("in an encoding that we did not ask for"));
        }
        let body = whole(answer).await.map_err(|problem| open(&problem))?;
        match message::refusal(&body, id) {
            Refusal::Words(words) => {
                Err(self.fault(status, in_session).quoting(first_line(&words)))
            }
            Refusal::Answer(message) => Ok(StreamableHttpPostResponse::Json(*message, None)),
            Refusal::Unclear(problem) => {
                Err(open(&format!("its body may hold a result: {problem}")))
            }
        }
    }

    /// What a status means that is no success, and nothing beside it.
    fn fault(&self, status: StatusCode, in_session: bool) -> Fault {
        let meaning = match status.as_u16() {
            404 if in_session => Meaning::Forgotten,
            400 | 401 | 403 | 404 | 410 => Meaning::NotLetIn,
            // 408 is what a proxy says about a request it passed on.
            408 => Meaning::Open,
            _ if status.is_client_error() => Meaning::NotTaken,
            _ => Meaning::Open,
        };
        Fault::new(
            meaning,
            format!("{} answered {}", self.place, in_words(status)),
        )
    }

    fn told(&self, fault: Fault) -> WebError {
        drop(self.first.set(fault.clone()));
        StreamableHttpError::Client(fault)
    }
}

fn in_words(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

fn header(answer: &Answer, name: &str) -> Option<String> {
    Some(answer.headers().get(name)?.to_str().ok()?.to_owned())
}

fn is(media: &str, wanted: &str) -> bool {
    let media = media.split(';').next().unwrap_or_default().trim();
    media.eq_ignore_ascii_case(wanted)
}

fn insert(request: &mut Request, name: &'static str, text: Option<&str>) {
    // What a server gave us as a header can be one.
    if let Some(Ok(value)) = text.map(HeaderValue::from_str) {
        request.headers.insert(HeaderName::from_static(name), value);
    }
}

fn events(answer: Answer) -> BoxStream<'static, Result<Sse, SseError>> {
    let pieces = stream::unfold((answer, 0), async |(mut answer, taken)| {
        let piece = answer.chunk().await.transpose()?;
        let taken = taken + piece.as_ref().map_or(0, Bytes::len);
        let piece = match piece {
            Ok(_) if taken > ANSWER_BYTES_MAX => {
                Err(format!("an answer of more than {ANSWER_BYTES_MAX} bytes"))
            }
            piece => piece,
        };
        Some((piece.map_err(std::io::Error::other), (answer, taken)))
    });
    let read = SseStream::from_bytes_stream(pieces).map(|event| {
        let mut event = event?;
        if let Some(data) = event.data.as_deref().and_then(message::of_event) {
            event.data = Some(data);
        }
        Ok(event)
    });
    read.boxed()
}

/// The body, or why it is not there as a whole.
async fn whole(mut answer: Answer) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    let broken = |_| "its body broke off".to_owned();
    while let Some(chunk) = answer.chunk().await.map_err(broken)? {
        if body.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(format!("its body has more than {ANSWER_BYTES_MAX} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

impl StreamableHttpClient for Bounded {
    type Error = Fault;

    async fn post_message(
        &self,
        _uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, WebError> {
        let posted = self.post(&message, session_id, custom_headers);
        posted.await.map_err(|fault| self.told(fault))
    }

    async fn delete_session(
        &self,
        _uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), WebError> {
        let request = self.request(Method::DELETE, Some(session_id.as_ref()), custom_headers);
        // Whether the server minds is its own business.
        let sent = self.send(request, SendPermit::always()).await;
        sent.map(drop).map_err(|fault| self.told(fault))
    }

    async fn get_stream(
        &self,
        _uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, WebError> {
        let in_session = session_id.is_some();
        if last_event_id.is_some() || self.is_listening.swap(true, Ordering::SeqCst) {
            tokio::time::sleep(READ_ON_AFTER).await;
        }
        let mut request = self.request(Method::GET, session_id.as_deref(), custom_headers);
        insert(&mut request, LAST_EVENT_HEADER, last_event_id.as_deref());
        let answer = self.send(request, SendPermit::always()).await;
        let answer = answer.map_err(|fault| self.told(fault))?;
        let status = answer.status();
        if status.as_u16() == 405 {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        if !status.is_success() {
            return Err(self.told(self.fault(status, in_session)));
        }
        Ok(events(answer))
    }
}
