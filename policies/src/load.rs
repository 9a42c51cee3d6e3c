//! Reading rule files: the only I/O of this crate.
//!
//! Owns which files are taken at all. What their bytes mean is in `rule_file`.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use crate::error::{PolicyError, shown};
use crate::policy::Policy;
use crate::rule_file::{RULE_FILE_BYTES_MAX, Schemas};

impl Policy {
    /// Reads a rule file.
    pub fn read(file: &Path) -> Result<Self, PolicyError> {
        Self::read_with(file, &|_, _| None)
    }

    /// Reads a rule file, knowing what the arguments of some tools look like.
    pub fn read_with(file: &Path, schemas: &Schemas<'_>) -> Result<Self, PolicyError> {
        let bytes = read_bounded(file).map_err(|error| {
            PolicyError::whole(
                file,
                format!("cannot be read: {}", shown(&error.to_string())),
                "name a file that exists and that this user may read",
            )
        })?;
        match bytes {
            Some(bytes) => Self::parse_with(file, &bytes, schemas),
            None => Err(PolicyError::whole(
                file,
                "not a regular file",
                "name the rule files themselves",
            )),
        }
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
