//! Whole-connector tests.
