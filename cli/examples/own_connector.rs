//! A connector of one's own: a warehouse that speaks a few lines of HTTP over a plain socket.
//! `tests/outcomes` holds it to the contract of `operators_tests::kit`.
use std::{io, net::Ipv4Addr, sync::Arc, time::Duration};

use operators::{
    Call, Connector, ConnectorError, ConnectorName, Effect, EffectClass, Health, InvokeOutcome,
    ProbeOutcome, Registry, TenantId, Tool, ToolContract, ToolName,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // What is promised about the tool: an unknown outcome is settled by asking the warehouse.
    let tool = Tool {
        contract: ToolContract::new(EffectClass::Probeable),
        schema: None,
        connector: Arc::new(Warehouse::at(8080)),
    };
    let (connector, name) = (
        ConnectorName::parse("warehouse")?,
        ToolName::parse("orders.hold")?,
    );
    let registry = Registry::from_tools([(connector, name, tool)]);
    for (connector, tool, registered, kind) in registry.tools() {
        let effect = registered.contract.effect.as_str();
        let line = format!("{connector}:{tool} ({kind}, {effect})\n");
        io::Write::write_all(&mut io::stdout(), line.as_bytes())?;
    }
    Ok(())
}

/// The largest answer taken in.
const ANSWER_MAX: u64 = 64 * 1024;

/// The connector: it knows where the warehouse is, and nothing else.
#[derive(Debug)]
pub struct Warehouse {
    port: u16,
}

impl Warehouse {
    /// The warehouse on this machine.
    pub fn at(port: u16) -> Self {
        Self { port }
    }

    /// Status and body of a whole answer. Every error of it means: it may have been heard.
    async fn ask(
        mut stream: TcpStream,
        request: &str,
        patience: Duration,
    ) -> io::Result<(u16, serde_json::Value)> {
        let asking = async {
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.take(ANSWER_MAX).read_to_string(&mut answer).await?;
            let (head, body) = answer
                .split_once("\r\n\r\n")
                .ok_or(io::ErrorKind::UnexpectedEof)?;
            let status = head
                .split(' ')
                .nth(1)
                .and_then(|status| status.parse().ok());
            // JSON tells by itself whether it is whole.
            Ok((
                status.ok_or(io::ErrorKind::InvalidData)?,
                serde_json::from_str(body)?,
            ))
        };
        tokio::time::timeout(patience, asking).await?
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await
    }
}

#[operators::async_trait]
impl Connector for Warehouse {
    async fn invoke(&self, call: &Call) -> InvokeOutcome {
        let error = |problem: String| ConnectorError::new(format!("the warehouse {problem}"));
        let stream = match self.connect().await {
            Ok(stream) => stream,
            // Nobody heard anything: provably no effect.
            Err(problem) => return InvokeOutcome::NotApplied(error(format!("is away: {problem}"))),
        };
        // Connecting took time: nothing is sent that the executor has given up meanwhile.
        if let Err(refused) = call.permit.check() {
            return InvokeOutcome::NotApplied(refused);
        }
        let key = &call.downstream_key;
        let request = format!(
            "POST /apply HTTP/1.1\r\nhost: warehouse\r\nx-downstream-key: {key}\r\ncontent-length: 0\r\n\r\n"
        );
        match Self::ask(stream, &request, call.deadline).await {
            Ok((200, result)) => InvokeOutcome::Applied(Effect {
                result: result.into(),
                effect_id: Some(key.clone()),
            }),
            Ok((status @ 400..=500, _)) if status != 408 => {
                InvokeOutcome::NotApplied(error(format!("refused with {status}")))
            }
            Ok((status, _)) => InvokeOutcome::Unknown(error(format!("answered {status}"))),
            Err(problem) => InvokeOutcome::Unknown(error(format!("was not understood: {problem}"))),
        }
    }

    async fn probe(&self, call: &Call) -> ProbeOutcome {
        let request = format!(
            "GET /seen?key={} HTTP/1.1\r\nhost: warehouse\r\n\r\n",
            call.downstream_key
        );
        let asked = async { Self::ask(self.connect().await?, &request, call.deadline).await };
        match asked.await {
            Ok((200, seen)) if seen.get("applied") == Some(&true.into()) => {
                ProbeOutcome::Applied(Effect {
                    result: seen.get("result").cloned().unwrap_or_default().into(),
                    effect_id: Some(call.downstream_key.clone()),
                })
            }
            Ok((200, seen)) if seen.get("applied") == Some(&false.into()) => {
                ProbeOutcome::NotApplied
            }
            other => ProbeOutcome::Unknown(ConnectorError::new(format!(
                "the warehouse cannot tell: {other:?}"
            ))),
        }
    }

    async fn check(&self, _tenant: &TenantId) -> Health {
        match self.connect().await {
            Ok(_) => Health::Well("the warehouse is open".to_owned()),
            Err(problem) => Health::Ill(ConnectorError::new(problem.to_string())),
        }
    }
}
