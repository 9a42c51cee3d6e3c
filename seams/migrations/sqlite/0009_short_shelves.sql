-- Shelves of 512 numbers instead of 16,384. The receipts of one commit were spread over nearly as many
-- pages as there were receipts; now they share the few that a shelf takes.
DROP INDEX receipt_shelf;
CREATE INDEX receipt_shelf ON receipt (tenant, (sequence >> 9), idempotency_key);
