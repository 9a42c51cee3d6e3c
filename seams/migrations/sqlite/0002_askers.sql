-- The receipt of the proposal that waits: asking again after a lost answer finds its place again.
ALTER TABLE waiter ADD COLUMN asker TEXT NOT NULL DEFAULT '';
