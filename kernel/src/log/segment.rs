//! A segment: the texts of a part of a log as lines of a file, under a header with all that is needed
//! to check them without the store.
//!
//! Owns what a segment says. It must not know files: lines are given to it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::checkpoint::{PublicKey, SignedCheckpoint, origin_of};
use super::pruning::{Mark, Pruning, stub};
use super::tree::{Frontier, LogHash};
use crate::json;
use crate::key::TenantId;

/// The only form there is so far.
const FORM: u32 = 1;

/// The first line of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SegmentHeader {
    /// The signed checkpoint of the log when it ended at `to`.
    pub checkpoint: String,
    /// The log's edge at `from`, in base64: the last link, then the roots of the full subtrees.
    pub edge: String,
    /// The place of the first line, from 0.
    pub from: u64,
    /// Which form the file has.
    pub segment: u32,
    /// Whose receipts they are.
    pub tenant: TenantId,
    /// The place after the last line.
    pub to: u64,
}

/// Why a file is no segment, or none that holds.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The header says nothing that can be understood.
    #[error("its first line is no header of a segment: {0}")]
    Header(String),
    /// The checkpoint in it is none, or of something else.
    #[error("its checkpoint {0}")]
    Checkpoint(String),
    /// There are more or fewer lines than the header says.
    #[error("it has {found} receipts, and its header says {told}")]
    Length {
        /// How many there are.
        found: u64,
        /// How many there should be.
        told: u64,
    },
    /// A line is no receipt.
    #[error("its line {line} is no receipt: {problem}")]
    Line {
        /// Which one, the header being the first.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// The lines are not those that were signed.
    #[error("its receipts do not have the root that was signed: it was changed")]
    Root,
}

impl SegmentHeader {
    /// Of the receipts between an edge of a log and a checkpoint of it.
    pub fn new(tenant: &TenantId, edge: &Frontier, checkpoint: &SignedCheckpoint) -> Self {
        Self {
            checkpoint: checkpoint.to_string(),
            edge: STANDARD.encode(edge.to_bytes()),
            from: edge.size(),
            segment: FORM,
            tenant: tenant.clone(),
            to: checkpoint.checkpoint.size,
        }
    }

    /// Reads a segment's first line.
    pub fn parse(line: &str) -> Result<Self, SegmentError> {
        let header: Self =
            serde_json::from_str(line).map_err(|error| SegmentError::Header(error.to_string()))?;
        if header.segment != FORM {
            let told = format!("form {} is not known", header.segment);
            return Err(SegmentError::Header(told));
        }
        Ok(header)
    }

    fn edge(&self) -> Result<Frontier, SegmentError> {
        let bytes = STANDARD.decode(&self.edge).ok();
        let edge = bytes.and_then(|bytes| Frontier::from_bytes(self.from, &bytes));
        edge.ok_or_else(|| SegmentError::Header("its edge is of no log of that size".to_owned()))
    }
}

/// Goes through a segment's lines.
#[derive(Debug)]
pub struct Segment {
    header: SegmentHeader,
    edge: Frontier,
    root: LogHash,
    bytes: Sha256,
    mark: Mark,
    stubs: Frontier,
}

impl Segment {
    /// Begins with the header, whose checkpoint one of these keys must have signed. `by` is the
    /// receipt of the pruning that it is for.
    pub fn begin(line: &str, keys: &[PublicKey], by: &str) -> Result<Self, SegmentError> {
        let header = SegmentHeader::parse(line)?;
        let edge = header.edge()?;
        let signed: SignedCheckpoint = header
            .checkpoint
            .parse()
            .map_err(|problem| SegmentError::Checkpoint(format!("cannot be read: {problem}")))?;
        if !keys.iter().any(|key| signed.is_signed_by(key)) {
            let keys: Vec<String> = keys.iter().map(PublicKey::to_string).collect();
            let told = format!("is not signed by {}", keys.join(" or "));
            return Err(SegmentError::Checkpoint(told));
        }
        let checkpoint = signed.checkpoint;
        if checkpoint.origin != origin_of(&header.tenant) || checkpoint.size != header.to {
            let told = format!(
                "is of {} receipts of `{}`",
                checkpoint.size, checkpoint.origin
            );
            return Err(SegmentError::Checkpoint(told));
        }
        let mark = Mark {
            by: by.into(),
            from: header.from,
            to: header.to,
        };
        let mut segment = Self {
            header,
            edge,
            root: checkpoint.root,
            bytes: Sha256::new(),
            mark,
            stubs: Frontier::default(),
        };
        segment.read(line);
        Ok(segment)
    }

    fn read(&mut self, line: &str) {
        self.bytes.update(line.as_bytes());
        self.bytes.update(b"\n");
    }

    /// The next line: where it stands in the log, and its leaf.
    pub fn line(&mut self, text: &str) -> Result<(u64, LogHash), SegmentError> {
        let position = self.edge.size();
        let stub = stub(&self.mark, text).map_err(|problem| SegmentError::Line {
            line: position - self.header.from + 2,
            problem,
        })?;
        self.read(text);
        self.stubs.push(LogHash::of_leaf(stub.as_bytes()));
        let leaf = LogHash::of_leaf(text.as_bytes());
        self.edge.push(leaf);
        Ok((position, leaf))
    }

    /// What the first line says.
    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// After the last line: if these are the receipts that were signed, the pruning of them into a
    /// file of that name.
    pub fn finish(self, file: &str) -> Result<Pruning, SegmentError> {
        let SegmentHeader { from, to, .. } = self.header;
        let (found, told) = (self.edge.size() - from, to.saturating_sub(from));
        if found != told {
            return Err(SegmentError::Length { found, told });
        }
        if self.edge.root() != self.root {
            return Err(SegmentError::Root);
        }
        Ok(Pruning {
            by: self.mark.by,
            digest: json::hex_after("sha256:", &self.bytes.finalize()),
            from,
            root: self.root,
            segment: file.to_owned(),
            stubs: self.stubs.root(),
            to,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tree::tests::leaves;
    use crate::log::{Checkpoint, SigningKey};

    fn pruning(
        lines: &[String],
        header: &SegmentHeader,
        key: &SigningKey,
    ) -> Result<Pruning, SegmentError> {
        let header = serde_json::to_string(header).expect("JSON");
        let mut segment = Segment::begin(&header, &[key.public()], "rc")?;
        for line in lines {
            segment.line(line)?;
        }
        segment.finish("a.jsonl")
    }

    fn checked(lines: &[String], header: &SegmentHeader, key: &SigningKey) -> Option<SegmentError> {
        pruning(lines, header, key).err()
    }

    fn receipt(key: &str) -> String {
        format!(
            r#"{{"fence":1,"generation":1,"idempotency_key":"{key}","kind":"proposal","outcome":"applied","receipt_id":"r{key}","tenant_id":"acme"}}"#
        )
    }

    // Rule 11.7
    #[test]
    fn a_segment_holds_as_it_was_signed_and_in_no_other_way() {
        let key = SigningKey::from_seed(&[1; 32]);
        let tenant = TenantId::parse("acme").expect("a tenant");
        let lines = ["one", "two", "three"].map(receipt);
        for before in [0, 1, 6, 13] {
            let mut log = Frontier::default();
            for leaf in leaves(before) {
                log.push(leaf);
            }
            let edge = log.clone();
            for line in &lines {
                log.push(LogHash::of_leaf(line.as_bytes()));
            }
            let checkpoint = Checkpoint {
                origin: origin_of(&tenant),
                size: log.size(),
                root: log.root(),
            };
            let signed = SignedCheckpoint::sign(checkpoint, &[&key]);
            let header = SegmentHeader::new(&tenant, &edge, &signed);
            let text = serde_json::to_string(&header).expect("JSON");
            assert_eq!(SegmentHeader::parse(&text).as_ref(), Ok(&header));
            assert_eq!(checked(&lines, &header, &key), None);
            let other = ["one", "two", "Three"].map(receipt);
            let changed = checked(&other, &header, &key);
            assert_eq!(changed, Some(SegmentError::Root));
            let short = checked(&lines[..2], &header, &key);
            assert_eq!(short, Some(SegmentError::Length { found: 2, told: 3 }));
            let other = SigningKey::from_seed(&[2; 32]);
            let unsigned = checked(&lines, &header, &other).expect("refused");
            assert!(unsigned.to_string().contains("not signed"), "{unsigned}");
            let moved = SegmentHeader {
                to: header.to + 1,
                ..header.clone()
            };
            assert!(checked(&lines, &moved, &key).is_some());
        }
        let newer = r#"{"checkpoint":"","edge":"","from":0,"segment":2,"tenant":"acme","to":0}"#;
        assert!(SegmentHeader::parse(newer).is_err());
    }
}
