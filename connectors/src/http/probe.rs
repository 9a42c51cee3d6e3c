//! Asking a vendor whether an earlier attempt took effect: a `GET`, and what its answer means.
//!
//! Owns the probe of a tool. What fits neither condition, both, or cannot be read is unknown.

use hyper::Method;

use operators_kernel::{Call, ConnectorError, ProbeOutcome};

use crate::config::{ConnectorConfig, ProbeConfig, ToolConfig};
use crate::hidden::Hidden;
use crate::http::answer::{self, Head};
use crate::http::body::Body;
use crate::http::condition::Condition;
use crate::http::headers::{self, Headers};
use crate::http::outcome::quoted;
use crate::http::query::Query;
use crate::http::reading::{Take, condition, holds};
use crate::http::sender::Answer;
use crate::http::tool::{self, Outline};
use crate::registry::{Place, RegistryError};
use crate::size::{ANSWER_DEFAULT, SizeText};

/// The compiled probe of a tool.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) sent: Outline,
    applied_if: Condition,
    not_applied_if: Option<Condition>,
    take: Take,
    max_answer: SizeText,
}

impl Probe {
    pub(crate) fn compile(
        config: &ProbeConfig,
        connector: &ConnectorConfig,
        tool: &ToolConfig,
        shared: &Headers,
        place: &Place,
    ) -> Result<Self, RegistryError> {
        let secret_args = &tool.secret_args;
        let path = tool::path(config.path.as_deref(), secret_args, place)?;
        let mut headers = shared.clone();
        headers.extend(headers::compile(&config.headers, place)?);
        let Some(applied_if) = condition("applied_if", config.applied_if.as_ref(), place)? else {
            return Err(place.refuse(
                "applied_if",
                "is missing; write `applied_if = { pointer = \"/id\", exists = true }`",
            ));
        };
        let not_applied_if = condition("not_applied_if", config.not_applied_if.as_ref(), place)?;
        Ok(Self {
            sent: Outline {
                label: format!("the probe `GET {}`", path.label()),
                method: Method::GET,
                path,
                query: Query::default(),
                headers,
                body: Body::Nothing,
                key_header: None,
                secret_args: secret_args.clone(),
                secret_path: false,
            },
            applied_if,
            not_applied_if,
            max_answer: connector.max_answer.unwrap_or(ANSWER_DEFAULT),
            take: Take::compile(config.result.as_deref(), config.effect_id.as_deref(), place)?,
        })
    }

    /// What an answer says about the call that was probed for.
    pub(crate) async fn judge(
        &self,
        mut answer: Answer,
        call: &Call,
        hidden: &Hidden,
    ) -> ProbeOutcome {
        let label = &self.sent.label;
        let status = answer.status().as_u16();
        let head = Head::of(&answer);
        let body = answer::read(&mut answer, self.max_answer).await;
        let value = body
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|body| head.value(body));
        let found = self.applied_if.holds(call, status, &value);
        let absent = holds(self.not_applied_if.as_ref(), call, status, &value);
        let said = || quoted(label, status, body.as_deref().unwrap_or_default(), hidden);
        match (found, absent) {
            (Ok(true), Ok(false)) => {
                let value = value.unwrap_or_default();
                ProbeOutcome::Applied(self.take.effect(value, hidden))
            }
            (Ok(false), Ok(true)) => ProbeOutcome::NotApplied,
            (Ok(true), Ok(true)) => unknown(format!("{}, which means both", said())),
            (Ok(false), Ok(false)) => unknown(format!("{}, which tells nothing", said())),
            (Err(problem), _) | (_, Err(problem)) => unknown(format!(
                "{label} answered {status}, but the body cannot be read: {problem}"
            )),
        }
    }
}

fn unknown(message: String) -> ProbeOutcome {
    ProbeOutcome::Unknown(ConnectorError::new(message))
}
