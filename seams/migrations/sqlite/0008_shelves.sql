-- The receipts of a key are found shelf by shelf, 16,384 numbers each, and no longer in one index by
-- key: there every duplicate wrote to a page of its own, wherever its key is, and the more keys there
-- are the fewer share one. Now those written at about the same time share pages.
DROP INDEX receipt_key;
CREATE INDEX receipt_shelf ON receipt (tenant, (sequence >> 14), idempotency_key);
