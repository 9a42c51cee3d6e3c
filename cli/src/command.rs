//! One file per command.

pub(crate) mod alerts;
pub(crate) mod approvals;
pub(crate) mod connectors;
pub(crate) mod doctor;
pub(crate) mod doubts;
pub(crate) mod init;
pub(crate) mod keys;
pub(crate) mod pause;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod receipts;
pub(crate) mod run;
pub(crate) mod status;
