//! `operators connectors test`: is it there, and does it let us in? Never an effect.

use anyhow::{Context as _, Result, bail};
use operators_kernel::{
    Call, EffectClass, EntityKey, Health, IdempotencyKey, InvokeOutcome, SendPermit, Tool,
    ToolName, json,
};
use serde_json::{Map, Value};

use crate::args::ConnectorsTestArgs;
use crate::command::connectors::health;
use crate::compose;
use crate::exit::Exit;
use crate::output::{self, data, note, shown, unless_gone};
use crate::project::Project;

/// The keys of a read that nobody proposed.
const TEST_KEY: &str = "connectors-test";

pub(crate) async fn run(args: &ConnectorsTestArgs, project: &Project) -> Result<Exit> {
    let registry = compose::registry(project)?;
    let of_name = registry.tools().filter(|(name, ..)| **name == args.name);
    let tools: Vec<(&ToolName, &Tool)> = of_name.map(|(_, name, tool, _)| (name, tool)).collect();
    let Some((_, first)) = tools.first() else {
        if project.config.connectors.contains_key(&args.name) {
            bail!(
                "connector `{}` has no tools, so there is nothing to test",
                args.name
            );
        }
        bail!("no connector `{}` in this project", args.name);
    };
    if let Some(wanted) = &args.tool {
        let tool = tools.iter().find(|(name, _)| *name == wanted);
        let (_, tool) = tool.with_context(|| {
            let known: Vec<&str> = tools.iter().map(|(name, _)| name.as_str()).collect();
            format!(
                "no tool `{wanted}` on `{}`; there are: {}",
                args.name,
                known.join(", ")
            )
        })?;
        return read(args, project, wanted, tool).await;
    }
    let tenant = project.tenant(&args.whose)?;
    match health(&*first.connector, &tenant).await {
        Health::Well(told) => {
            unless_gone(data(&format!("{}: well: {}", args.name, shown(&told))))?;
            Ok(Exit::Ok)
        }
        Health::Ill(error) => {
            unless_gone(data(&format!("{}: ill: {}", args.name, shown(&error))))?;
            Ok(Exit::CouldNotRun)
        }
        Health::Unasked => {
            unless_gone(data(&format!("{}: not asked", args.name)))?;
            let reads = tools
                .iter()
                .find(|(_, tool)| tool.contract.effect == EffectClass::Read);
            note(match reads {
                Some(_) => "it cannot be asked without a call; make a read with `--tool NAME`",
                None => "it cannot be asked without an effect, and has no read to try",
            });
            Ok(Exit::Ok)
        }
    }
}

/// Makes one read, past the gates: it has no effect, and leaves no receipt.
async fn read(
    args: &ConnectorsTestArgs,
    project: &Project,
    name: &ToolName,
    tool: &Tool,
) -> Result<Exit> {
    if tool.contract.effect != EffectClass::Read {
        bail!(
            "`{}:{name}` is {}, not a read; a test never has an effect",
            args.name,
            tool.contract.effect.as_str()
        );
    }
    let Value::Object(read_args) = json::parse(&args.args).context("`--args`")? else {
        bail!("`--args` is not a JSON object");
    };
    if let Some(schema) = &tool.schema {
        schema.check(&read_args)?;
    }
    let call = call(args, project, name, tool, read_args)?;
    let made = tokio::time::timeout(tool.contract.timeout, tool.connector.invoke(&call));
    match made.await {
        Ok(InvokeOutcome::Applied(effect)) => {
            unless_gone(output::json(&effect.result, true))?;
            Ok(Exit::Ok)
        }
        Ok(InvokeOutcome::NotApplied(error) | InvokeOutcome::Unknown(error)) => {
            bail!("{error}")
        }
        Err(_) => bail!("no answer within {:?}", tool.contract.timeout),
    }
}

fn call(
    args: &ConnectorsTestArgs,
    project: &Project,
    name: &ToolName,
    tool: &Tool,
    read_args: Map<String, Value>,
) -> Result<Call> {
    Ok(Call {
        tenant: project.tenant(&args.whose)?,
        operator: None,
        connector: args.name.clone(),
        tool: name.clone(),
        args: read_args.into(),
        entity_key: EntityKey::parse(TEST_KEY)?,
        idempotency_key: IdempotencyKey::parse(TEST_KEY)?,
        downstream_key: TEST_KEY.to_owned(),
        attempt: 1,
        deadline: tool.contract.timeout,
        permit: SendPermit::always(),
    })
}
