//! Where much data goes: to stdout, or into a file that is whole or not there.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use tempfile::NamedTempFile;

use crate::output::{named, shown};

/// Takes bytes until it is finished; dropped before that, a file is as it was.
#[derive(Debug)]
pub(crate) enum Delivery {
    /// Whoever reads along.
    Stdout(BufWriter<io::Stdout>),
    /// A new file beside the place it will have, readable by its owner only.
    File {
        file: BufWriter<NamedTempFile>,
        path: PathBuf,
    },
    /// A pipe or a device: nothing can take its place.
    Device(BufWriter<File>),
}

impl Delivery {
    /// To that file, or to stdout.
    pub(crate) fn to(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Self::Stdout(BufWriter::new(io::stdout())));
        };
        let open = || {
            // Followed, so that a link stays a link to the new file.
            let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            match fs::metadata(&path) {
                Ok(about) if about.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
                Ok(about) if !about.is_file() => {
                    let device = File::options().write(true).open(&path)?;
                    Ok(Self::Device(BufWriter::new(device)))
                }
                _ => {
                    let folder = path
                        .parent()
                        .filter(|folder| !folder.as_os_str().is_empty());
                    let file = NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
                    Ok(Self::File {
                        file: BufWriter::new(file),
                        path,
                    })
                }
            }
        };
        let opened: io::Result<Self> = open();
        opened.with_context(|| format!("`{}` cannot be written", shown(&path.display())))
    }

    /// As [`Delivery::to`], for what a terminal would only garble.
    pub(crate) fn of_a_document(path: Option<&Path>, what: &str) -> Result<Self> {
        if path.is_none() && io::stdout().is_terminal() {
            bail!("{what} is no text for a terminal; name a file with `--output FILE`");
        }
        Self::to(path)
    }

    /// Everything was written: from now on the file is there, all of it.
    pub(crate) fn finish(self) -> Result<()> {
        match self {
            Self::Stdout(mut stdout) => stdout.flush().map_err(|error| named(&error))?,
            Self::Device(mut device) => device.flush().map_err(of_device)?,
            Self::File { file, path } => {
                let keep = || {
                    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
                    file.as_file().sync_all()?;
                    file.persist(&path).map_err(io::Error::from)?;
                    Ok(())
                };
                let kept: io::Result<()> = keep();
                kept.with_context(|| format!("`{}` cannot be written", shown(&path.display())))?;
            }
        }
        Ok(())
    }
}

impl Write for Delivery {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(stdout) => stdout.write(bytes).map_err(|error| named(&error)),
            Self::File { file, .. } => file.write(bytes),
            Self::Device(device) => device.write(bytes).map_err(of_device),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(stdout) => stdout.flush().map_err(|error| named(&error)),
            Self::File { file, .. } => file.flush(),
            Self::Device(device) => device.flush().map_err(of_device),
        }
    }
}

/// Whoever reads a pipe that was named may leave as one who reads stdout may.
fn of_device(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => named(&error),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_or_as_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out");
        fs::write(&path, "before").expect("writes");
        let mut half = Delivery::to(Some(&path)).expect("opens");
        half.write_all(b"half").expect("writes");
        drop(half);
        assert_eq!(fs::read_to_string(&path).expect("reads"), "before");
        let mut whole = Delivery::to(Some(&path)).expect("opens");
        whole.write_all(b"after").expect("writes");
        assert_eq!(fs::read_to_string(&path).expect("reads"), "before");
        whole.finish().expect("keeps");
        assert_eq!(fs::read_to_string(&path).expect("reads"), "after");
        let left = fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(left, 1, "nothing else is left");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = Delivery::to(Some(Path::new("/nowhere/at/all"))).expect_err("refused");
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    }
}
