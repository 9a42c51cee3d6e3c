//! One connection that speaks HTTP/1.1, driven by whoever waits for its answer.
//!
//! Owns the HTTP library. A line has no task of its own, so it ends with the request or the pool
//! that holds it, and with no runtime.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper::{Request, Response};

use crate::http::departure::{Carried, Departure};
use crate::http::dial::Wire;

/// A connection, greeted and able to speak.
pub(crate) struct Line {
    sender: SendRequest<Full<Bytes>>,
    /// Gone once it ended.
    connection: Option<Connection<Wire, Full<Bytes>>>,
    carried: Carried,
}

impl Line {
    pub(crate) async fn new(wire: Wire, carried: Carried) -> Result<Self, hyper::Error> {
        let (sender, connection) = handshake(wire).await?;
        Ok(Self {
            sender,
            connection: Some(connection),
            carried,
        })
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
        departure: &Arc<Departure>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        self.carried.carry(departure);
        let answer = self.sender.send_request(request);
        self.beside(answer).await
    }

    /// Goes on with the connection while something waits for what comes over it.
    pub(crate) async fn beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Some(connection) = &mut self.connection
                // How it ended is told to the work that waits for it.
                && Pin::new(connection).poll(cx).is_ready()
            {
                self.connection = None;
            }
            work.as_mut().poll(cx)
        })
        .await
    }

    /// Whether the last answer is over and the other side has not hung up, as far as can be seen.
    pub(crate) async fn is_free(&mut self) -> bool {
        self.beside(std::future::ready(())).await;
        let sender = &mut self.sender;
        let is_ready = poll_fn(|cx| {
            let ready = sender.poll_ready(cx);
            Poll::Ready(matches!(ready, Poll::Ready(Ok(()))))
        });
        is_ready.await && self.connection.is_some()
    }
}
