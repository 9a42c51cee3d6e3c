//! Reading rule files: the only I/O of this crate.
//!
//! Owns which files are taken at all. What their bytes mean is in `rule_file`.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use crate::error::{PolicyError, PolicyProblems, shown};
use crate::policy::Policy;
use crate::rule_file::{RULE_FILE_BYTES_MAX, Schemas};

impl Policy {
    /// Reads a rule file.
    pub fn read(file: &Path) -> Result<Self, PolicyError> {
        Self::read_with(file, &|_, _| None)
    }

    /// Reads a rule file, knowing what the arguments of some tools look like.
    pub fn read_with(file: &Path, schemas: &Schemas<'_>) -> Result<Self, PolicyError> {
        Self::read_whole(file, schemas).map_err(|problems| problems.first)
    }

    /// The same, with every problem of the file.
    pub fn read_whole(file: &Path, schemas: &Schemas<'_>) -> Result<Self, PolicyProblems> {
        let bytes = read_bounded(file).map_err(|error| {
            PolicyError::whole(
                file,
                format!("cannot be read: {}", shown(&error.to_string())),
                "name a file that exists and that this user may read",
            )
        })?;
        let Some(bytes) = bytes else {
            let remedy = "name the rule files themselves";
            return Err(PolicyError::whole(file, "not a regular file", remedy).into());
        };
        Self::parse_whole(file, &bytes, schemas)
    }
}

/// The file's bytes, at most one more than allowed; `None` when it is not a regular file.
fn read_bounded(file: &Path) -> io::Result<Option<Vec<u8>>> {
    // Asked before it is opened: opening a pipe would wait for its writer.
    if !std::fs::metadata(file)?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let bound = u64::try_from(RULE_FILE_BYTES_MAX).unwrap_or(u64::MAX);
    File::open(file)?
        .take(bound.saturating_add(1))
        .read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}
