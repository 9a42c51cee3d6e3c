//! Why a message to a server got no answer, in words of ours.
//!
//! Owns what is kept of it: the place without its credentials, the status, and the first line of what
//! the server wrote. The library's own words name types of Rust, and cut the status off. It must not
//! know what a message was for.

use std::error::Error;
use std::fmt;

use rmcp::ServiceError;
use rmcp::model::ErrorData;
use rmcp::transport::streamable_http_client::StreamableHttpError;

use crate::hidden::Hidden;

/// What a fault says about the message that met it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The server did nothing with it, or was sent nothing.
    NotTaken,
    /// The server did nothing with it, and may let a new connection in: a credential was replaced.
    NotLetIn,
    /// The server did nothing with it, because it knows the session no longer.
    Forgotten,
    /// The server may have done something.
    Open,
}

/// A fault.
#[derive(Clone)]
pub(crate) struct Fault {
    told: String,
    /// What others wrote: shown only as far as [`Hidden`] lets it.
    theirs: String,
    pub(crate) meaning: Meaning,
}

// What others wrote stands in no log.
impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fault({:?}, {})", self.meaning, self.told)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told)
    }
}

impl Error for Fault {}

impl Fault {
    pub(crate) fn new(meaning: Meaning, told: impl Into<String>) -> Self {
        Self {
            told: told.into(),
            theirs: String::new(),
            meaning,
        }
    }

    /// With what others wrote about it.
    pub(crate) fn quoting(mut self, text: &str) -> Self {
        text.clone_into(&mut self.theirs);
        self
    }

    /// In words that may be shown.
    pub(crate) fn told(&self, hidden: &Hidden) -> String {
        if self.theirs.is_empty() {
            return self.told.clone();
        }
        format!("{}: `{}`", self.told, hidden.quote(&self.theirs))
    }

    /// The same after a few words of ours, with nothing left that is hidden.
    pub(crate) fn after(self, words: &str, hidden: &Hidden) -> Self {
        Self::new(self.meaning, format!("{words}{}", self.told(hidden)))
    }

    /// The fault of ours inside an error of the library's.
    pub(crate) fn inside<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(fault) = error.downcast_ref::<Self>() {
                return Some(fault);
            }
            if let Some(StreamableHttpError::Client(fault)) =
                error.downcast_ref::<StreamableHttpError<Self>>()
            {
                return Some(fault);
            }
            cause = error.source();
        }
        None
    }

    /// What became of a request to `place`, whose connection ended as `ended` says.
    pub(crate) fn of_request(error: &ServiceError, place: &str, ended: Option<&Self>) -> Self {
        let open = |told: String| Self::new(Meaning::Open, told);
        match error {
            ServiceError::TransportSend(error) => match Self::inside(&*error.error) {
                Some(fault) => fault.clone(),
                None => open(format!("the connection to {place} failed")),
            },
            ServiceError::TransportClosed => ended.cloned().unwrap_or_else(|| {
                open(format!("the connection to {place} ended before an answer"))
            }),
            ServiceError::McpError(error) => Self::of_error(error, place),
            ServiceError::UnexpectedResponse => {
                open(format!("{place} answered with something else"))
            }
            _ => open(format!("there was no answer from {place}")),
        }
    }

    /// An error that the server answered with.
    pub(crate) fn of_error(error: &ErrorData, place: &str) -> Self {
        let told = format!("{place} answered with error {}", error.code.0);
        Self::new(Meaning::Open, told).quoting(first_line(&error.message))
    }
}

/// The first line that says anything.
pub(crate) fn first_line(text: &str) -> &str {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| !line.is_empty()).unwrap_or_default()
}
