//! `operators init`: a project that works at once, with no server and no network.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use operators_kernel::log::SigningKey;

use crate::args::InitArgs;
use crate::config::CONFIG_FILE;
use crate::exit::Exit;
use crate::notary::Keyring;
use crate::output::{data, next, note, quoted, shown, unless_gone};
use crate::project::is_there;

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
    if is_there(&dir.join(CONFIG_FILE))? {
        note(&format!(
            "`{}` is a project already; nothing was changed",
            shown(&dir.display())
        ));
        tell_next(&dir);
        return Ok(Exit::Ok);
    }
    for (file, _) in FILES {
        let file = dir.join(file);
        if is_there(&file)? {
            bail!(
                "`{}` exists; nothing was written; move it away, or name another folder",
                shown(&file.display())
            );
        }
    }
    let store_dir = dir.join(STORE_DIR);
    let key = write_all(&dir, &store_dir)?.public();
    // Told when all of it is there: whoever reads along may leave, or the stream be full.
    for (file, _) in FILES {
        let told = format!("wrote {}", shown(&dir.join(file).display()));
        unless_gone(data(&told)).context("the project was written, but that cannot be told")?;
    }
    note(&format!(
        "checkpoints of the receipts will be signed by {key}"
    ));
    tell_next(&dir);
    Ok(Exit::Ok)
}

/// Writes everything, or takes away again what it wrote: half a project would stand in the way of
/// the next try.
fn write_all(dir: &Path, store_dir: &Path) -> Result<SigningKey> {
    let mut written: Vec<PathBuf> = Vec::new();
    let mut write = || {
        fs::create_dir_all(dir)
            .with_context(|| format!("`{}` cannot be made", shown(&dir.display())))?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(store_dir)
            .with_context(|| format!("`{}` cannot be made", shown(&store_dir.display())))?;
        let ignore = store_dir.join(".gitignore");
        if !is_there(&ignore)? {
            write_new(&ignore, STORE_IGNORE)?;
        }
        let key = Keyring::of(store_dir.to_owned()).signing_key()?;
        for (file, text) in FILES {
            let file = dir.join(file);
            write_new(&file, text)?;
            written.push(file);
        }
        Ok(key)
    };
    let done: Result<SigningKey> = write();
    if done.is_err() {
        for file in written {
            // The first problem is the one to tell.
            drop(fs::remove_file(file));
        }
    }
    done
}

/// Writes a file that was not there, whole or not at all.
fn write_new(file: &Path, text: &str) -> Result<()> {
    let write = || {
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut opened = OpenOptions::new().write(true).create_new(true).open(file)?;
        let written = opened.write_all(text.as_bytes());
        if written.is_err() {
            fs::remove_file(file)?;
        }
        written
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
