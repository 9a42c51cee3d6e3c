CREATE TRIGGER receipt_no_update BEFORE UPDATE ON receipt
  BEGIN SELECT RAISE(ABORT, 'receipts are append-only'); END;
