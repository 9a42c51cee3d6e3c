//! What one executor does, section by section of `docs/semantics.md`.

mod cancel;
mod doubts;
mod failing;
mod forecast;
mod input;
mod keys;
mod landing;
mod leases;
mod leaving;
mod order;
mod receipts;
mod runtimes;
mod secrets;
mod simulation;
mod stores;
mod stubs;
mod support;
mod trust;
mod turns;
mod unheard;
