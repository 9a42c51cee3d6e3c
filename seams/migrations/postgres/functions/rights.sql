-- Whoever may see the schema may not therefore act: that is granted on its own.
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA operators FROM PUBLIC;
