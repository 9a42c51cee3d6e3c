//! One command tool, compiled from its configuration: everything that can be wrong is found here.
//!
//! Owns what `argv` may say, and how a call fills it in.

use std::path::Path;

use operators_kernel::Call;

use crate::command::codes::Codes;
use crate::config::{ConnectorConfig, EffectWord, OutputForm, ToolConfig};
use crate::pointer::EffectIdAt;
use crate::registry::{Place, RegistryError, effect_word};
use crate::template::{Placeholder, Template, overlap};

/// The argument after which a program takes nothing for an option.
const OPTIONS_END: &str = "--";

/// How to make processes of a call.
#[derive(Debug)]
pub(crate) struct CommandTool {
    pub(crate) program: Program,
    pub(crate) probe: Option<Program>,
    pub(crate) output: OutputForm,
    /// Where in the result the effect's id is.
    pub(crate) effect_id: EffectIdAt,
    /// Arguments that never show, as paths of object keys.
    pub(crate) secret_args: Vec<String>,
    pub(crate) reads: bool,
}

/// One program and what its exit codes say.
#[derive(Debug)]
pub(crate) struct Program {
    argv: Vec<Template>,
    pub(crate) codes: Codes,
    /// What messages call it: its name, not what was filled in.
    pub(crate) label: String,
}

impl CommandTool {
    pub(crate) fn compile(
        config: &ConnectorConfig,
        tool: &ToolConfig,
        place: &Place,
        base_dir: &Path,
    ) -> Result<Self, RegistryError> {
        let Some(argv) = &tool.argv else {
            return Err(place.refuse(
                "argv",
                "is missing; write `argv = [\"program\", \"{args.order}\"]`",
            ));
        };
        let program = Program::compile(argv, tool, base_dir)
            .map_err(|problem| place.refuse("argv", problem))?
            .with_codes(tool.applied.as_deref(), tool.not_applied.as_deref())
            .map_err(|(field, problem)| place.refuse(field, problem))?;
        let probe = match &tool.probe {
            None => None,
            Some(probe) => {
                let inside = place.inside("probe");
                let argv = probe.argv.as_ref().ok_or_else(|| {
                    inside.refuse("argv", "is missing; write the program that can tell")
                })?;
                let program = Program::compile(argv, tool, base_dir)
                    .map_err(|problem| inside.refuse("argv", problem))?
                    .with_codes(probe.applied.as_deref(), probe.not_applied.as_deref())
                    .map_err(|(field, problem)| inside.refuse(field, problem))?;
                Some(program)
            }
        };
        let effect = effect_word(config, tool);
        match (effect, &probe) {
            (EffectWord::Probeable, None) => {
                return Err(place.refuse(
                    "probe",
                    "is missing; write `probe = { argv = [\"program\"], not_applied = \"1\" }`, \
                     or use another effect",
                ));
            }
            (EffectWord::Probeable, Some(_)) | (_, None) => {}
            (_, Some(_)) => {
                return Err(place.refuse(
                    "probe",
                    "only a probeable tool is probed; set `effect = \"probeable\"` or remove it",
                ));
            }
        }
        Ok(Self {
            program,
            probe,
            output: tool.output.unwrap_or_default(),
            effect_id: EffectIdAt::compile(tool.effect_id.as_deref(), place)?,
            secret_args: tool.secret_args.clone(),
            reads: effect == EffectWord::Read,
        })
    }
}

/// A program whose exit codes are not read yet.
struct Uncoded {
    argv: Vec<Template>,
    label: String,
}

impl Uncoded {
    fn with_codes(
        self,
        applied: Option<&str>,
        not_applied: Option<&str>,
    ) -> Result<Program, (&'static str, String)> {
        Ok(Program {
            codes: Codes::compile(applied, not_applied)?,
            argv: self.argv,
            label: self.label,
        })
    }
}

impl Program {
    fn compile(argv: &[String], tool: &ToolConfig, base_dir: &Path) -> Result<Uncoded, String> {
        let Some((name, arguments)) = argv.split_first() else {
            return Err("is empty; its first text is the program".to_owned());
        };
        if name.is_empty() || name.contains(['{', '}', '\0']) {
            return Err("the program is a plain name or path, without placeholders".to_owned());
        }
        // With a slash it is a path; seen from the project, wherever the program itself runs.
        let program = if name.contains('/') {
            base_dir.join(name).to_string_lossy().into_owned()
        } else {
            name.clone()
        };
        let mut templates = vec![Template::literal(&program)];
        for argument in arguments {
            if argument.contains('\0') {
                return Err("an argument holds a NUL".to_owned());
            }
            let template = Template::parse(argument)?;
            if let Some(secret) = template.arguments().find(|argument| {
                let mut secrets = tool.secret_args.iter();
                secrets.any(|secret| overlap(secret, argument))
            }) {
                return Err(format!(
                    "`{{args.{secret}}}` is a secret argument, and every process of this machine \
                     can see command lines; the program reads it on stdin"
                ));
            }
            templates.push(template);
        }
        Ok(Uncoded {
            argv: templates,
            label: name.clone(),
        })
    }

    /// The program itself: a path, or a name to look for.
    pub(crate) fn path(&self) -> &str {
        let first = self.argv.first();
        first.and_then(Template::as_literal).unwrap_or_default()
    }

    /// The arguments of a call: each template becomes exactly one.
    pub(crate) fn render(&self, call: &Call) -> Result<Vec<String>, String> {
        let mut rendered: Vec<String> = Vec::with_capacity(self.argv.len());
        let mut options_ended = false;
        for template in &self.argv {
            let plain = |placeholder: &Placeholder, value: &str| {
                if value.contains('\0') {
                    return Err(format!("`{}` holds a NUL", placeholder.name()));
                }
                Ok(value.to_owned())
            };
            let argument = template.render(call, plain)?;
            // Nobody who fills in a value may turn it into an option of the program.
            if let Some(first) = template.leading_placeholder()
                && argument.starts_with('-')
                && !options_ended
            {
                return Err(format!(
                    "`{}` begins with `-`, which `{}` could take for an option; put `--` before \
                     it in `argv` if the program knows that",
                    first.name(),
                    self.label
                ));
            }
            options_ended = options_ended || template.as_literal() == Some(OPTIONS_END);
            rendered.push(argument);
        }
        Ok(rendered)
    }
}
