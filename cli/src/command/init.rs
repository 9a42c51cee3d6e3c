//! `operators init`: a project that works at once, with no server and no network.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::args::InitArgs;
use crate::config::CONFIG_FILE;
use crate::exit::Exit;
use crate::notary::Keyring;
use crate::output::{data, next, note, quoted, shown};

/// What is written. The configuration comes last: with it, the folder is a project.
const FILES: [(&str, &str); 3] = [
    (
        "policies/ship-risk.toml",
        include_str!("../example/policies/ship-risk.toml"),
    ),
    (
        "plans/ship-risk.json",
        include_str!("../example/plans/ship-risk.json"),
    ),
    (CONFIG_FILE, include_str!("../example/operators.toml")),
];

/// The store's folder keeps itself out of version control.
const STORE_DIR: &str = ".operators";
const STORE_IGNORE: &str = "*\n";

pub(crate) fn run(args: &InitArgs, project: Option<&Path>) -> Result<Exit> {
    let dir = match (&args.dir, project) {
        (Some(dir), None) => dir.clone(),
        (None, Some(dir)) => dir.to_owned(),
        (Some(dir), Some(base)) => base.join(dir),
        (None, None) => PathBuf::from("."),
    };
    if dir.join(CONFIG_FILE).exists() {
        note(&format!(
            "`{}` is a project already; nothing was changed",
            shown(&dir.display())
        ));
        tell_next(&dir);
        return Ok(Exit::Ok);
    }
    if let Some((taken, _)) = FILES.iter().find(|(file, _)| dir.join(file).exists()) {
        bail!(
            "`{}` exists; nothing was written; move it away, or name another folder",
            shown(&dir.join(taken).display())
        );
    }
    for (file, text) in FILES {
        write_new(&dir.join(file), text)?;
        data(&format!("wrote {}", shown(&dir.join(file).display())))?;
    }
    let store_dir = dir.join(STORE_DIR);
    if !store_dir.exists() {
        DirBuilder::new()
            .mode(0o700)
            .create(&store_dir)
            .with_context(|| format!("`{}`", shown(&store_dir.display())))?;
        write_new(&store_dir.join(".gitignore"), STORE_IGNORE)?;
    }
    let key = Keyring::of(store_dir).signing_key()?.public();
    note(&format!(
        "checkpoints of the receipts will be signed by {key}"
    ));
    tell_next(&dir);
    Ok(Exit::Ok)
}

fn write_new(file: &Path, text: &str) -> Result<()> {
    let write = || {
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut opened = OpenOptions::new().write(true).create_new(true).open(file)?;
        opened.write_all(text.as_bytes())
    };
    write().with_context(|| format!("`{}` cannot be written", shown(&file.display())))
}

fn tell_next(dir: &Path) {
    let chosen = if dir == Path::new(".") {
        String::new()
    } else {
        format!(" -C {}", quoted(&dir.to_string_lossy()))
    };
    note("");
    note("next:");
    next(
        &format!("operators{chosen} run --once"),
        "run it twice: the second run changes nothing",
    );
}

#[cfg(test)]
mod tests {
    use operators_kernel::ExecutionPlan;
    use operators_policies::Policy;

    use super::*;
    use crate::config::Config;

    #[test]
    fn every_file_of_the_example_loads() {
        for (file, text) in FILES {
            match file {
                CONFIG_FILE => {
                    Config::parse(Path::new(file), text).expect("the configuration");
                }
                plan if plan.starts_with("plans/") => {
                    ExecutionPlan::parse(text).expect("the plan");
                }
                policy => {
                    Policy::parse(Path::new(policy), text.as_bytes()).expect("the policy");
                }
            }
        }
    }
}
