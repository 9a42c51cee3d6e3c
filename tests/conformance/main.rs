//! Every store against every rule, and what each store promises besides.

mod interleavings;
mod one_commit;
mod programs;
mod sqlite_alive;
mod sqlite_drafts;
mod sqlite_file;
mod sqlite_names;
mod sqlite_rollback;
mod sqlite_shelves;
mod sqlite_upgrade;

use operators_tests::conformance;
use operators_tests::dynamodb::DynamoBench;
use operators_tests::postgres::PgBench;
use operators_tests::stores::{AskedTwice, MemoryBench, SqliteBench, Wrapped};

conformance!(
    memory,
    MemoryBench::fresh(),
    skip burned_keys_survive_a_restart: "it forgets with its process",
    skip doubts_survive_a_restart: "it forgets with its process",
    skip receipts_survive_a_restart_and_go_on: "it forgets with its process",
    skip a_process_that_ended_is_dead_at_once: "its handles are one process",
);

conformance!(sqlite, SqliteBench::fresh());

conformance!(
    memory_asked_twice,
    Wrapped::new(MemoryBench::fresh(), AskedTwice::around),
    skip burned_keys_survive_a_restart: "it forgets with its process",
    skip doubts_survive_a_restart: "it forgets with its process",
    skip receipts_survive_a_restart_and_go_on: "it forgets with its process",
    skip a_process_that_ended_is_dead_at_once: "its handles are one process",
);

conformance!(
    sqlite_asked_twice,
    Wrapped::new(SqliteBench::fresh(), AskedTwice::around),
);

conformance!(
    postgres,
    PgBench::fresh(),
    skip a_process_that_ended_is_dead_at_once: "nothing but its lease shows that it ended",
    skip a_statement_cannot_touch_the_stores_own_tables: "its role here may do anything; `tests/postgres` has one that may not",
);

conformance!(
    postgres_asked_twice,
    Wrapped::new(PgBench::fresh(), AskedTwice::around),
    skip a_process_that_ended_is_dead_at_once: "nothing but its lease shows that it ended",
    skip a_statement_cannot_touch_the_stores_own_tables: "its role here may do anything; `tests/postgres` has one that may not",
);

conformance!(
    postgres_in_batches,
    PgBench::in_batches(),
    skip a_process_that_ended_is_dead_at_once: "nothing but its lease shows that it ended",
    skip a_statement_cannot_touch_the_stores_own_tables: "its role here may do anything; `tests/postgres` has one that may not",
);

conformance!(
    dynamodb,
    DynamoBench::fresh(),
    skip a_process_that_ended_is_dead_at_once: "nothing but its lease shows that it ended",
);

conformance!(
    dynamodb_asked_twice,
    Wrapped::new(DynamoBench::fresh(), AskedTwice::around),
    skip a_process_that_ended_is_dead_at_once: "nothing but its lease shows that it ended",
);
