//! Credentials: where they are kept, and how a configuration names one.
//!
//! Owns the mapping from a name to a source. It must not know what a secret is for.

mod env;
mod file;
mod program;
mod reference;
mod sources;
mod text;

pub use env::EnvSecrets;
pub use sources::{ProjectSecrets, SecretConfig};

pub(crate) use reference::{SecretText, secret_name};
