//! Segments as files: written whole or not at all, and read back line by line.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use operators_kernel::log::{
    LOG_PAGE_MAX, LogHash, Pruning, PublicKey, Segment, SegmentError, SegmentHeader, is_stub,
    is_stub_of,
};

use super::verify::Signed;
use crate::deliver::Delivery;
use crate::output::{json_text, shown};

/// Writes a segment of the texts that the store has at those places.
pub(super) async fn write(signed: &Signed, header: &SegmentHeader, file: &Path) -> Result<()> {
    let mut out = Delivery::to(Some(file))?;
    writeln!(out, "{}", json_text(header, false)?)?;
    let mut from = header.from;
    while from < header.to {
        let page = signed.store.log();
        let page = page.log_entries(&signed.tenant, from, LOG_PAGE_MAX).await?;
        let gone = |number: u64| anyhow!("receipt {number} of the log is gone; see `verify`");
        for entry in page.iter().take_while(|entry| entry.position < header.to) {
            if entry.position != from {
                return Err(gone(from + 1));
            }
            let body = entry.body.as_deref().filter(|body| !is_stub(body));
            writeln!(out, "{}", body.ok_or_else(|| gone(from + 1))?)?;
            from += 1;
        }
        if page.is_empty() {
            return Err(gone(from + 1));
        }
    }
    out.finish()?;
    let folder = file.parent().filter(|dir| !dir.as_os_str().is_empty());
    // The name too must outlive a crash: nothing is taken away for a file that may be gone.
    let folder = File::open(folder.unwrap_or(Path::new(".")))?;
    Ok(folder.sync_all()?)
}

/// A segment that is being read.
pub(super) struct Reading {
    lines: BufReader<File>,
    pub(super) segment: Segment,
}

impl Reading {
    /// Opens a file and checks what its first line says.
    pub(super) fn open(file: &Path, keys: &[PublicKey], by: &str) -> Result<Self> {
        let opened = File::open(file).with_context(|| format!("`{}`", shown(&file.display())))?;
        let mut lines = BufReader::new(opened);
        let header = next(&mut lines)?.context("it is empty")?;
        let segment = Segment::begin(&header, keys, by)?;
        Ok(Self { lines, segment })
    }

    /// The next receipt: its place, its leaf and its text.
    pub(super) fn next(&mut self) -> Result<Option<(u64, LogHash, String)>> {
        let Some(line) = next(&mut self.lines)? else {
            return Ok(None);
        };
        let (position, leaf) = self.segment.line(&line)?;
        Ok(Some((position, leaf, line)))
    }
}

fn next(lines: &mut BufReader<File>) -> Result<Option<String>> {
    let mut line = String::new();
    if lines.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    if line.pop() != Some('\n') {
        bail!("its last line is cut off");
    }
    Ok(Some(line))
}

/// Reads a whole segment back; what pruning it into that file is.
pub(super) fn read_back(file: &Path, keys: &[PublicKey], by: &str) -> Result<Pruning> {
    let name = shown(&file.display());
    let read = || {
        let mut reading = Reading::open(file, keys, by)?;
        while reading.next()?.is_some() {}
        Ok(reading.segment.finish(&file.display().to_string())?)
    };
    let read: Result<Pruning> = read();
    read.with_context(|| format!("`{name}` is no sound segment"))
}

/// Holds a segment against the log: what is wrong with it, if anything is.
pub(super) async fn compare(
    signed: &Signed,
    file: &Path,
    keys: &[PublicKey],
) -> Result<Result<(u64, u64), String>> {
    let name = shown(&file.display());
    let wrong = |error: anyhow::Error| match error.downcast::<SegmentError>() {
        Ok(error) => Ok(Err(format!("segment `{name}`: {error}"))),
        Err(error) => Err(error.context(format!("segment `{name}`"))),
    };
    let mut reading = match Reading::open(file, keys, "") {
        Ok(reading) => reading,
        Err(error) => return wrong(error),
    };
    let header = reading.segment.header().clone();
    if header.tenant != signed.tenant {
        let whose = shown(&header.tenant);
        return Ok(Err(format!("segment `{name}` is of tenant `{whose}`")));
    }
    let mut page = Vec::new().into_iter();
    loop {
        let (position, leaf, text) = match reading.next() {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(error) => return wrong(error),
        };
        if page.len() == 0 {
            let log = signed.store.log();
            let found = log.log_entries(&signed.tenant, position, LOG_PAGE_MAX);
            page = found.await?.into_iter();
        }
        let number = position + 1;
        let Some(entry) = page.next().filter(|entry| entry.position == position) else {
            return Ok(Err(format!(
                "segment `{name}` has receipt {number} of the log, and the store does not"
            )));
        };
        let id = shown(&entry.receipt_id);
        if entry.leaf != leaf {
            return Ok(Err(format!(
                "segment `{name}`: receipt `{id}` ({number} of the log) was changed"
            )));
        }
        let left = entry.body.as_deref().filter(|text| is_stub(text));
        if left.is_some_and(|left| !is_stub_of(left, &text)) {
            return Ok(Err(format!(
                "what the store has left of receipt `{id}` ({number} of the log) was changed: \
                 segment `{name}` has its text"
            )));
        }
    }
    match reading.segment.finish("") {
        Ok(_) => Ok(Ok((header.from, header.to))),
        Err(error) => wrong(error.into()),
    }
}
