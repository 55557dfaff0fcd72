-- Default privileges of whoever creates the extension may have given objects
-- to PUBLIC; nothing here is for everybody.
REVOKE ALL ON ALL TABLES IN SCHEMA lock_history FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA lock_history FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA lock_history FROM PUBLIC;

-- The worker begins to record when this transaction commits.
SELECT lock_history.announce();
