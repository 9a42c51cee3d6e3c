//! Looking whether the vendor can be used, by a request that changes nothing.
//!
//! With a `check` path, a `GET` that must be answered with a 2xx; without one, a `HEAD` of the base
//! URL, to which any answer tells that the vendor is there.

use std::time::Duration;

use hyper::Method;
use serde_json::Map;

use operators_kernel::{
    Call, ConnectorError, ConnectorName, EntityKey, Health, IdempotencyKey, SendPermit, TenantId,
    ToolName,
};

use crate::config::ConnectorConfig;
use crate::hidden::Hidden;
use crate::http::answer;
use crate::http::body::Body;
use crate::http::headers::{self, HeaderSource};
use crate::http::outcome::quoted;
use crate::http::path::PathTemplate;
use crate::http::query::Query;
use crate::http::sender::Answer;
use crate::http::tool::Outline;
use crate::registry::{Place, RegistryError};

/// What stands where a call has names of its own.
const NAME: &str = "check";

/// A compiled look.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) sent: Outline,
    /// Whether only a 2xx will do.
    asked: bool,
}

impl Check {
    pub(crate) fn compile(config: &ConnectorConfig, place: &Place) -> Result<Self, RegistryError> {
        let asked = config.check.is_some();
        let path = PathTemplate::parse(config.check.as_deref().unwrap_or("/"))
            .map_err(|problem| place.refuse("check", problem))?;
        if let Some(argument) = path.arguments().next() {
            let problem = format!("`{{args.{argument}}}` belongs to a call, and there is none");
            return Err(place.refuse("check", problem));
        }
        let mut headers = headers::compile(&config.headers, place)?;
        headers.retain(|_, source| match source {
            HeaderSource::Template(template) => template.arguments().next().is_none(),
            HeaderSource::Secret(_) => true,
        });
        let method = if asked { Method::GET } else { Method::HEAD };
        Ok(Self {
            sent: Outline {
                label: format!("`{method} {}`", path.label()),
                method,
                path,
                query: Query::default(),
                headers,
                body: Body::Nothing,
                key_header: None,
                secret_args: Vec::new(),
                secret_path: false,
            },
            asked,
        })
    }

    /// What an answer says about the vendor.
    pub(crate) async fn judge(&self, mut answer: Answer, hidden: &Hidden) -> Health {
        let status = answer.status();
        let label = &self.sent.label;
        if !self.asked || status.is_success() {
            return Health::Well(format!("{label} answered {}", status.as_u16()));
        }
        let body = answer::glance(&mut answer).await;
        Health::Ill(ConnectorError::new(quoted(
            label,
            status.as_u16(),
            &body,
            hidden,
        )))
    }
}

/// A call that stands for nobody's action.
pub(crate) fn call(tenant: &TenantId, deadline: Duration) -> Result<Call, String> {
    let problem = |error: operators_kernel::IdentifierError| error.to_string();
    Ok(Call {
        tenant: tenant.clone(),
        operator: None,
        connector: ConnectorName::parse(NAME).map_err(problem)?,
        tool: ToolName::parse(NAME).map_err(problem)?,
        args: Map::new().into(),
        entity_key: EntityKey::parse(NAME).map_err(problem)?,
        idempotency_key: IdempotencyKey::parse(NAME).map_err(problem)?,
        downstream_key: NAME.to_owned(),
        attempt: 1,
        deadline,
        permit: SendPermit::always(),
    })
}
