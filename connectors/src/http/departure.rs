//! What of a request left this machine, and whether more of it may: asked right before each write.
//!
//! Owns the only place where bytes of a request leave. It lies beneath TLS, so that nothing comes
//! between its question and the system call that sends: a process that was stopped anywhere else
//! asks again when it goes on. It must not know HTTP.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use operators_kernel::{ConnectorError, SendPermit};

/// One request on its way out.
#[derive(Debug)]
pub(crate) struct Departure {
    permit: SendPermit,
    left: AtomicBool,
    /// Why a write was refused. None comes after it.
    refused: OnceLock<String>,
}

impl Departure {
    pub(crate) fn new(permit: SendPermit) -> Arc<Self> {
        Arc::new(Self {
            permit,
            left: AtomicBool::new(false),
            refused: OnceLock::new(),
        })
    }

    /// Whether a byte of it may have left. If not, the vendor knows nothing of it.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// Why no more of it may leave, if that is so.
    pub(crate) fn refused(&self) -> Option<&str> {
        self.refused.get().map(String::as_str)
    }

    /// Asks for one write.
    pub(crate) fn ask(&self) -> io::Result<()> {
        if self.refused.get().is_some() {
            return Err(refused());
        }
        self.said(self.permit.check())
    }

    /// Asks before the first write, after what may have taken long.
    pub(crate) async fn confirm(&self) -> io::Result<()> {
        self.said(self.permit.confirm().await)
    }

    fn said(&self, permitted: Result<(), ConnectorError>) -> io::Result<()> {
        permitted.map_err(|error| {
            drop(self.refused.set(error.message));
            refused()
        })
    }
}

fn refused() -> io::Error {
    io::Error::other("it may not be sent any more")
}

/// Whose bytes a connection carries right now; nobody's while it is greeted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Carried(Arc<Mutex<Option<Arc<Departure>>>>);

impl Carried {
    /// From here on the bytes are those of this request.
    pub(crate) fn carry(&self, departure: &Arc<Departure>) {
        *self.lock() = Some(Arc::clone(departure));
    }

    fn now(&self) -> Option<Arc<Departure>> {
        self.lock().clone()
    }

    // A std lock: it is held for a copy, and nothing panics under it.
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<Departure>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that asks before it writes.
#[derive(Debug)]
pub(crate) struct Asking {
    stream: TcpStream,
    carried: Carried,
}

impl Asking {
    pub(crate) fn new(stream: TcpStream, carried: Carried) -> Self {
        Self { stream, carried }
    }

    fn write_with(
        &mut self,
        write: impl FnOnce(Pin<&mut TcpStream>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let departure = self.carried.now();
        if let Some(departure) = &departure {
            departure.ask()?;
        }
        // INVARIANT (asked-last): nothing may come between the question and the write.
        let written = write(Pin::new(&mut self.stream));
        if let (Some(departure), Poll::Ready(Ok(1..))) = (&departure, &written) {
            departure.left.store(true, Ordering::Release);
        }
        written
    }
}

impl AsyncRead for Asking {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Asking {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write_with(|stream| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write_with(|stream| stream.poll_write_vectored(cx, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
