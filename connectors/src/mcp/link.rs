//! One connection to a server: greeted, its tools listed, and told when they change.
//!
//! Owns the connection's life. It must not know what a call means.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, CancelledNotificationParam,
    ClientConfig, ClientJsonRpcMessage, ClientRequest, CustomRequest, CustomResult, ErrorCode,
    ErrorData, GetExtensions as _, Implementation, JsonRpcMessage, PaginatedRequestParams,
    RequestId, ServerResult,
};
use rmcp::service::{
    ClientInitializeError, NotificationContext, Peer, PeerRequestOptions, RequestContext,
    RunningService, ServiceError,
};
use rmcp::{ClientHandler, RoleClient, serve_client};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use operators_kernel::{SecretStore, SendPermit, TenantId};

use crate::config::ConnectorConfig;
use crate::hidden::Hidden;
use crate::mcp::accepted::Seen;
use crate::mcp::fault::{Fault, Meaning};
use crate::mcp::stdio::{Server, Stdio};
use crate::mcp::web::Web;
use crate::registry::{Place, RegistryError};

/// How many pages of tools are read, and how many tools: more is no list but an attack.
const PAGES_MAX: usize = 50;
const TOOLS_MAX: usize = 1_000;

/// How a server is reached.
#[derive(Debug)]
pub(crate) enum Way {
    /// A program of ours that speaks on its stdin and stdout.
    Stdio(Stdio),
    /// Streamable HTTP.
    Web(Web),
}

impl Way {
    pub(crate) fn compile(
        config: &ConnectorConfig,
        place: &Place,
        base_dir: &Path,
    ) -> Result<Self, RegistryError> {
        match (&config.argv, &config.url) {
            (Some(argv), None) => {
                if !config.headers.is_empty() || config.allow_private_addresses.is_some() {
                    let problem = "belongs to a server behind a `url`; remove it";
                    let has_headers = !config.headers.is_empty();
                    let field = if has_headers {
                        "headers"
                    } else {
                        "allow_private_addresses"
                    };
                    return Err(place.refuse(field, problem));
                }
                Stdio::compile(argv, config, place, base_dir).map(Self::Stdio)
            }
            (None, Some(url)) => Web::compile(url.reveal(), config, place).map(Self::Web),
            (None, None) => Err(place.refuse(
                "argv",
                "is missing; write the server's program, or its address as `url`",
            )),
            (Some(_), Some(_)) => Err(place.refuse(
                "url",
                "stands beside `argv`; a server is a program or an address, not both",
            )),
        }
    }

    /// The server's name in messages, without credentials.
    fn place(&self) -> &str {
        match self {
            Self::Stdio(stdio) => stdio.place(),
            Self::Web(web) => web.place(),
        }
    }
}

/// What we say and hear as a client.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    changed: Arc<AtomicBool>,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("operators", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(rmcp::model::ClientCapabilities::default(), us)
    }

    async fn on_custom_request(
        &self,
        _request: CustomRequest,
        _context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        // The library prints this error: without the method, in which a server can put anything.
        let problem = "this client answers no such request";
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, problem, None))
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.store(true, Ordering::SeqCst);
    }
}

/// A connection that has been greeted.
pub(crate) struct Link {
    running: RunningService<RoleClient, Client>,
    place: String,
    changed: Arc<AtomicBool>,
    suspect: AtomicBool,
    tools: Mutex<Option<BTreeMap<String, Seen>>>,
    hidden: Hidden,
    /// Why the program's output ended.
    ended: Arc<OnceLock<Fault>>,
    /// The program, if it is one of ours; it ends with the connection.
    _server: Option<Server>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl Link {
    /// What a fault says is hidden as for `asked_for`, too: a server may have heard its secrets
    /// before.
    pub(crate) async fn connect(
        way: &Way,
        tenant: &TenantId,
        secrets: &dyn SecretStore,
        asked_for: &Hidden,
    ) -> Result<Self, Fault> {
        let changed = Arc::new(AtomicBool::new(false));
        let client = Client {
            changed: Arc::clone(&changed),
        };
        let place = way.place().to_owned();
        let mut hidden = Hidden::without_call();
        let first = Arc::new(OnceLock::new());
        let not_made = |problem| Fault::new(Meaning::NotTaken, problem);
        let not_greeted = |error, words: &str, hidden: &Hidden| {
            let fault = of_greeting(&error, &place, first.get());
            let fault = if words.is_empty() {
                fault
            } else {
                fault.quoting(words)
            };
            fault.after("the server did not greet us: ", &hidden.with(asked_for))
        };
        let (running, ended, server) = match way {
            Way::Stdio(stdio) => {
                let started = stdio.start(tenant, secrets, &mut hidden, &first).await;
                let (transport, server) = started.map_err(not_made)?;
                let greeted = serve_client(client, transport).await;
                let greeted =
                    greeted.map_err(|error| not_greeted(error, &server.last_words(), &hidden))?;
                (greeted, Arc::clone(&first), Some(server))
            }
            Way::Web(web) => {
                let transport = web.transport(tenant, secrets, &mut hidden, &first).await;
                let greeted = serve_client(client, transport.map_err(not_made)?).await;
                let greeted = greeted.map_err(|error| not_greeted(error, "", &hidden))?;
                // Requests have connections of their own: none says why another ended.
                (greeted, Arc::default(), None)
            }
        };
        Ok(Self {
            running,
            place,
            changed,
            suspect: AtomicBool::new(false),
            tools: Mutex::default(),
            hidden,
            ended,
            _server: server,
        })
    }

    fn peer(&self) -> &Peer<RoleClient> {
        self.running.peer()
    }

    /// Why a request got no answer.
    pub(crate) fn fault(&self, error: &ServiceError) -> Fault {
        Fault::of_request(error, &self.place, self.ended.get())
    }

    /// Calls a tool. The request leaves with its permit, or not at all; if the caller leaves, the
    /// server is told so.
    pub(crate) async fn call(
        &self,
        params: CallToolRequestParams,
        permit: SendPermit,
    ) -> Result<CallToolResponse, ServiceError> {
        let mut request = CallToolRequest::new(params);
        request.extensions.insert(permit);
        let request = ClientRequest::CallToolRequest(request);
        let options = PeerRequestOptions::no_options();
        let sent = self
            .peer()
            .send_request_with_option(request, options)
            .await?;
        let mut abandoned = Abandoned(Some((self.peer().clone(), sent.id.clone())));
        let answered = sent.await_response().await;
        abandoned.0 = None;
        match answered? {
            ServerResult::CallToolResult(result) => Ok(CallToolResponse::Complete(result)),
            ServerResult::InputRequiredResult(asked) => Ok(CallToolResponse::InputRequired(asked)),
            ServerResult::CreateTaskResult(task) => Ok(CallToolResponse::Task(task)),
            _ => Err(ServiceError::UnexpectedResponse),
        }
    }

    /// No later call uses this connection.
    pub(crate) fn give_up(&self) {
        self.suspect.store(true, Ordering::SeqCst);
    }

    pub(crate) fn hidden(&self) -> &Hidden {
        &self.hidden
    }

    /// Whether a call may go this way: nothing was lost on it, and both ends are there.
    pub(crate) fn is_usable(&self) -> bool {
        !self.suspect.load(Ordering::SeqCst)
            && !self.running.is_closed()
            && !self.peer().is_transport_closed()
    }

    /// The server's tools; asked once, and again after it said that they changed.
    pub(crate) async fn tools(
        &self,
        until: Instant,
        asked_for: &Hidden,
    ) -> Result<BTreeMap<String, Seen>, Fault> {
        let listing = async {
            let mut tools = self.tools.lock().await;
            if self.changed.swap(false, Ordering::SeqCst) {
                *tools = None;
            }
            if tools.is_none() {
                *tools = Some(self.list(&self.hidden.with(asked_for)).await?);
            }
            Ok(tools.clone().unwrap_or_default())
        };
        let late = "the server did not list its tools in time";
        let listed = timeout_at(until, listing).await;
        let listed = listed.unwrap_or_else(|_| Err(Fault::new(Meaning::NotTaken, late)));
        // A server that does not list may have forgotten us: the next call greets it.
        listed.inspect_err(|_| self.give_up())
    }

    async fn list(&self, hidden: &Hidden) -> Result<BTreeMap<String, Seen>, Fault> {
        let odd = |problem: String| Fault::new(Meaning::NotTaken, problem);
        let mut found = BTreeMap::new();
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.peer().list_tools(Some(page)).await.map_err(|error| {
                let words = "the server does not list its tools: ";
                self.fault(&error).after(words, hidden)
            })?;
            for tool in &page.tools {
                let name = tool.name.to_string();
                let seen = Seen::of(tool).map_err(odd)?;
                if found.insert(name, seen).is_some() {
                    let twice = odd("the server lists a tool twice".to_owned());
                    return Err(twice.quoting(&tool.name).after("", hidden));
                }
            }
            if found.len() > TOOLS_MAX {
                return Err(odd(format!("the server lists more than {TOOLS_MAX} tools")));
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(found);
            }
        }
        Err(odd(format!(
            "the server's list of tools has more than {PAGES_MAX} pages"
        )))
    }
}

/// What a message leaves with: a call with its own permit.
pub(crate) fn permit(message: &ClientJsonRpcMessage) -> SendPermit {
    let permit = match message {
        JsonRpcMessage::Request(request) => request.request.extensions().get::<SendPermit>(),
        _ => None,
    };
    permit.cloned().unwrap_or_else(SendPermit::always)
}

/// Why a server did not greet us; `first` is the first fault there was.
fn of_greeting(error: &ClientInitializeError, place: &str, first: Option<&Fault>) -> Fault {
    let known = match error {
        ClientInitializeError::TransportError { error, .. } => Fault::inside(&*error.error),
        _ => None,
    };
    if let Some(fault) = known.or(first) {
        return fault.clone();
    }
    match error {
        ClientInitializeError::JsonRpcError(error) => Fault::of_error(error, place),
        ClientInitializeError::ConnectionClosed(_)
        | ClientInitializeError::TransportError { .. } => Fault::new(
            Meaning::NotTaken,
            format!("the connection to {place} ended before an answer"),
        ),
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => Fault::new(
            Meaning::NotTaken,
            format!("{place} speaks no version of the protocol that we do"),
        ),
        _ => Fault::new(
            Meaning::NotTaken,
            format!("{place} answered with something else"),
        ),
    }
}

/// A call whose caller may leave before the answer: the server is told then that nobody waits.
struct Abandoned(Option<(Peer<RoleClient>, RequestId)>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        let Some((peer, id)) = self.0.take() else {
            return;
        };
        // Without a runtime the connection has ended, too.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let reason = Some("the caller left".to_owned());
            let params = CancelledNotificationParam::new(Some(id), reason);
            drop(runtime.spawn(async move { peer.notify_cancelled(params).await }));
        }
    }
}

/// Marks a connection as suspect when it is dropped before an answer came.
pub(crate) struct Waiting<'a> {
    link: &'a Link,
    is_over: bool,
}

impl<'a> Waiting<'a> {
    /// A call begins.
    pub(crate) fn on(link: &'a Link) -> Self {
        Self {
            link,
            is_over: false,
        }
    }

    /// It was answered in a way that leaves the connection as good as it was.
    pub(crate) fn over(mut self) {
        self.is_over = true;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.link.give_up();
        }
    }
}
