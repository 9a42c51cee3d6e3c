//! One connection to a server: greeted, its tools listed, and told when they change.
//!
//! Owns the connection's life. It must not know what a call means.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::model::{
    ClientConfig, CustomRequest, CustomResult, ErrorCode, ErrorData, Implementation,
    PaginatedRequestParams,
};
use rmcp::service::{NotificationContext, Peer, RequestContext, RunningService};
use rmcp::{ClientHandler, RoleClient, serve_client};
use tokio::sync::Mutex;

use operators_kernel::{InvokeOutcome, SecretStore, TenantId};

use crate::config::ConnectorConfig;
use crate::hidden::Hidden;
use crate::mcp::accepted::Seen;
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
    changed: Arc<AtomicBool>,
    suspect: AtomicBool,
    tools: Mutex<Option<BTreeMap<String, Seen>>>,
    hidden: Hidden,
    /// The program, if it is one of ours; it ends with the connection.
    _server: Option<Server>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl Link {
    pub(crate) async fn connect(
        way: &Way,
        tenant: &TenantId,
        secrets: &dyn SecretStore,
    ) -> Result<Self, String> {
        let changed = Arc::new(AtomicBool::new(false));
        let client = Client {
            changed: Arc::clone(&changed),
        };
        let mut hidden = Hidden::without_call();
        let (running, server) = match way {
            Way::Stdio(stdio) => {
                let (transport, server) = stdio.start(tenant, secrets, &mut hidden).await?;
                let greeted = serve_client(client, transport).await;
                let greeted = greeted.map_err(|error| {
                    let words = server.last_words();
                    let told = if words.is_empty() {
                        error.to_string()
                    } else {
                        words
                    };
                    format!("the server did not greet us: `{}`", hidden.quote(&told))
                });
                (greeted?, Some(server))
            }
            Way::Web(web) => {
                let transport = web.transport(tenant, secrets, &mut hidden).await?;
                let greeted = serve_client(client, transport).await;
                let greeted = greeted.map_err(|error| {
                    let told = hidden.quote(&error.to_string());
                    format!("the server did not greet us: `{told}`")
                });
                (greeted?, None)
            }
        };
        Ok(Self {
            running,
            changed,
            suspect: AtomicBool::new(false),
            tools: Mutex::default(),
            hidden,
            _server: server,
        })
    }

    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        self.running.peer()
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
    pub(crate) async fn tools(&self, patience: Duration) -> Result<BTreeMap<String, Seen>, String> {
        let mut tools = self.tools.lock().await;
        if self.changed.swap(false, Ordering::SeqCst) {
            *tools = None;
        }
        if let Some(tools) = &*tools {
            return Ok(tools.clone());
        }
        let listed = tokio::time::timeout(patience, self.list()).await;
        let listed =
            listed.map_err(|_| "the server did not list its tools in time".to_owned())??;
        *tools = Some(listed.clone());
        Ok(listed)
    }

    async fn list(&self) -> Result<BTreeMap<String, Seen>, String> {
        let mut found = BTreeMap::new();
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.peer().list_tools(Some(page)).await.map_err(|error| {
                let told = self.hidden.quote(&error.to_string());
                format!("the server does not list its tools: `{told}`")
            })?;
            for tool in &page.tools {
                let name = tool.name.to_string();
                if found.insert(name, Seen::of(tool)?).is_some() {
                    let name = tool.name.escape_debug();
                    return Err(format!("the server lists the tool `{name}` twice"));
                }
            }
            if found.len() > TOOLS_MAX {
                return Err(format!("the server lists more than {TOOLS_MAX} tools"));
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(found);
            }
        }
        Err(format!(
            "the server's list of tools has more than {PAGES_MAX} pages"
        ))
    }
}

/// Marks a connection as suspect when it is dropped before an answer came.
pub(crate) struct Waiting<'a> {
    suspect: &'a AtomicBool,
    is_over: bool,
}

impl<'a> Waiting<'a> {
    /// A call begins.
    pub(crate) fn on(link: &'a Link) -> Self {
        Self {
            suspect: &link.suspect,
            is_over: false,
        }
    }

    /// It was answered, one way or the other.
    pub(crate) fn over(mut self, outcome: &InvokeOutcome) {
        self.is_over = !matches!(outcome, InvokeOutcome::Unknown(_));
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.suspect.store(true, Ordering::SeqCst);
        }
    }
}
