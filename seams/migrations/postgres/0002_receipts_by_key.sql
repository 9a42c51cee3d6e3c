-- The receipts of a key are found by a summary of every stretch of the table, and no longer in an
-- index by key: there each receipt wrote to a page of its own, wherever its key is, which was a tenth
-- of what a duplicate costs. A summary is made once for a stretch of 128 pages, behind the writers,
-- and tells of a key whether the stretch may hold its receipts; what no summary covers yet is read.
DROP INDEX operators.receipt_key;
CREATE INDEX receipt_stretch ON operators.receipt
  USING brin (idempotency_key text_bloom_ops (n_distinct_per_range = 1024, false_positive_rate = 0.001))
  WITH (pages_per_range = 128, autosummarize = on);
