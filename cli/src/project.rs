//! A project on disk: where it is, and the files its configuration speaks of.
//!
//! Owns paths. It must not know what is in a policy or a plan.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use operators_kernel::TenantId;

use crate::args::Whose;
use crate::config::{CONFIG_FILE, Config, StoreUrl, refusal};
use crate::locate;
use crate::output::{quoted, shown};

/// The largest configuration: far beyond what a person writes.
const CONFIG_BYTES_MAX: usize = 1 << 20;

/// A folder with `operators.toml`, read.
#[derive(Debug)]
pub(crate) struct Project {
    dir: PathBuf,
    chosen: bool,
    /// The text of the configuration, for errors that point into it.
    pub(crate) text: String,
    pub(crate) config: Config,
}

impl Project {
    /// Opens the chosen folder, or the nearest project upward.
    pub(crate) fn open(chosen: Option<&Path>) -> Result<Self> {
        let dir = match chosen {
            Some(dir) => dir.to_owned(),
            None => nearest_upward()?,
        };
        let file = plain_join(&dir, CONFIG_FILE.as_ref());
        if chosen.is_some() && dir.is_file() {
            bail!(
                "`{}` is a file, and a project is a folder; name its folder",
                shown(&dir.display())
            );
        }
        if chosen.is_some() && !is_there(&file)? {
            bail!(
                "`{}` is no project: it has no `{CONFIG_FILE}`; write one with `operators init {}`",
                shown(&dir.display()),
                quoted(&dir.to_string_lossy())
            );
        }
        let text = read_text(&file, CONFIG_BYTES_MAX)?;
        Ok(Self {
            config: Config::parse(&file, &text)?,
            chosen: chosen.is_some(),
            dir,
            text,
        })
    }

    /// The project's folder.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A path of the configuration, as seen from here.
    pub(crate) fn path(&self, relative: &Path) -> PathBuf {
        plain_join(&self.dir, relative)
    }

    /// The configuration's own path.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.path(CONFIG_FILE.as_ref())
    }

    /// The file of the store, if it has one.
    pub(crate) fn store_file(&self) -> Option<PathBuf> {
        match &self.config.store.url {
            StoreUrl::Sqlite(path) => Some(self.path(path)),
            StoreUrl::Postgres(_) | StoreUrl::DynamoDb(_) | StoreUrl::Memory => None,
        }
    }

    /// The tenant to act for.
    pub(crate) fn tenant(&self, whose: &Whose) -> Result<TenantId> {
        match &whose.tenant {
            Some(tenant) => Ok(tenant.clone()),
            None => self.config.tenant(),
        }
    }

    /// A command to type next, for this very project and tenant.
    pub(crate) fn command(&self, rest: &str, whose: &Whose) -> String {
        let mut command = "operators".to_owned();
        if self.chosen {
            command.push_str(" -C ");
            command.push_str(&quoted(&self.dir.to_string_lossy()));
        }
        command.push(' ');
        command.push_str(rest);
        if let Some(tenant) = &whose.tenant {
            command.push_str(" --tenant ");
            command.push_str(&quoted(tenant.as_str()));
        }
        command
    }

    /// The policy files that `trust.policies` names, each once, in order of their paths.
    pub(crate) fn policy_files(&self) -> Result<Vec<PathBuf>> {
        self.files("trust.policies", &self.config.trust.policies)
    }

    /// The files that patterns name, each once, in order of their paths; `place` is where in the
    /// configuration they stand.
    pub(crate) fn files(&self, place: &str, patterns: &[String]) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for pattern in patterns {
            let found = self.matching(Path::new(pattern)).map_err(|error| {
                let at = locate::in_toml(&self.text, place);
                let problem = format!("`{place}`: `{}`: {error:#}", shown(pattern));
                refusal(&self.config_file(), &self.text, at, &problem)
            })?;
            files.extend(found);
        }
        files.sort();
        files.dedup();
        Ok(files)
    }

    /// The files that fit a path whose last component may hold `*`; hidden files never do.
    fn matching(&self, pattern: &Path) -> Result<Vec<PathBuf>> {
        let name = match pattern.components().next_back() {
            Some(Component::Normal(name)) => name.to_string_lossy().into_owned(),
            _ => bail!("names no file; write something like `policies/*.toml`"),
        };
        let folder = pattern.parent().unwrap_or(Path::new(""));
        if folder.to_string_lossy().contains('*') {
            bail!("`*` may stand in the last part only; name the folder");
        }
        if !name.contains('*') {
            return Ok(vec![self.path(pattern)]);
        }
        let folder = self.path(folder);
        let listed = match fs::read_dir(if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            &folder
        }) {
            Ok(listed) => listed,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                return Err(anyhow!("`{}`: {error}", shown(&folder.display())));
            }
        };
        let mut files = Vec::new();
        for entry in listed {
            let entry = entry.with_context(|| format!("`{}`", shown(&folder.display())))?;
            let file = entry.file_name();
            let file = file.to_string_lossy();
            if !file.starts_with('.') && fits(&name, &file) {
                files.push(folder.join(entry.file_name()));
            }
        }
        Ok(files)
    }
}

/// Whether `name` fits a pattern in which `*` stands for any run of characters.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(rest) = name.strip_prefix(head) else {
        return false;
    };
    let ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
    ends.into_iter()
        .any(|at| rest.get(at..).is_some_and(|rest| fits(tail, rest)))
}

/// Whether there is something at that path. What cannot be looked at is an error: to take it for
/// absent would be to say that nothing was ever done.
pub(crate) fn is_there(path: &Path) -> Result<bool> {
    path.try_exists().with_context(|| {
        format!(
            "`{}` cannot be looked at, so whether it is there is not known",
            shown(&path.display())
        )
    })
}

/// Joins without a leading `./`, so that messages show paths as people would type them.
fn plain_join(dir: &Path, relative: &Path) -> PathBuf {
    if dir == Path::new(".") {
        relative.to_owned()
    } else {
        dir.join(relative)
    }
}

fn nearest_upward() -> Result<PathBuf> {
    let here = std::env::current_dir().context("where this is cannot be told")?;
    for (level, folder) in here.ancestors().enumerate() {
        if folder.join(CONFIG_FILE).exists() {
            return Ok(match level {
                0 => PathBuf::from("."),
                _ => std::iter::repeat_n("..", level).collect(),
            });
        }
    }
    bail!(
        "no `{CONFIG_FILE}` here or in any folder above; write an example with `operators init`, \
         or name the project with `-C DIR`"
    );
}

/// Reads a regular file of at most `bytes_max` bytes; its size is looked at before it is opened.
pub(crate) fn read_text(file: &Path, bytes_max: usize) -> Result<String> {
    let shown_file = shown(&file.display());
    let about = fs::metadata(file).with_context(|| format!("`{shown_file}` cannot be read"))?;
    // Asked before it is opened: opening a pipe would wait for its writer.
    if !about.is_file() {
        bail!("`{shown_file}` is not a regular file");
    }
    let opened = File::open(file).with_context(|| format!("`{shown_file}` cannot be read"))?;
    if usize::try_from(about.len()).is_ok_and(|length| length > bytes_max) {
        bail!(
            "`{shown_file}` is {} bytes, at most {bytes_max} are read",
            about.len()
        );
    }
    bounded_text(opened, bytes_max).with_context(|| format!("`{shown_file}`"))
}

/// Reads all of `source`, at most `bytes_max` bytes of UTF-8.
pub(crate) fn bounded_text(source: impl std::io::Read, bytes_max: usize) -> Result<String> {
    let bound = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    source
        .take(bound.saturating_add(1))
        .read_to_end(&mut bytes)
        .context("cannot be read")?;
    checked_text(bytes, bytes_max)
}

/// Takes bytes as text, if they are few enough and UTF-8.
pub(crate) fn checked_text(bytes: Vec<u8>, bytes_max: usize) -> Result<String> {
    if bytes.len() > bytes_max {
        bail!("more than {bytes_max} bytes");
    }
    String::from_utf8(bytes)
        .map_err(|error| anyhow!("not UTF-8 at byte {}", error.utf8_error().valid_up_to()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        for (pattern, name) in [
            ("*.toml", "a.toml"),
            ("*", "a"),
            ("a*c*e", "abcde"),
            ("*.toml", ".toml"),
            ("κ*", "κλ"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("*.toml", "a.toml~"), ("a*c", "ab"), ("*.toml", "toml")] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn paths_are_shown_as_people_type_them() {
        let joined = plain_join(Path::new("."), Path::new("plans/a.json"));
        assert_eq!(joined, Path::new("plans/a.json"));
        let joined = plain_join(Path::new("demo"), Path::new("plans/a.json"));
        assert_eq!(joined, Path::new("demo/plans/a.json"));
    }
}
