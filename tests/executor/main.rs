//! What one executor does, section by section of `docs/semantics.md`.

mod smoke;
