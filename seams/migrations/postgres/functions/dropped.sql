-- Functions that no program calls any more: neither this version nor the one before, whose processes
-- may still be running.
DROP FUNCTION IF EXISTS operators.claim, operators.settle;
