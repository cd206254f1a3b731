-- The oldest schema that a release must know to use this one: its own number, unless its file says otherwise. The
-- highest number of all rows counts (stores/sql/schema.py). Rows of earlier migrations have none.

ALTER TABLE schema_version ADD COLUMN oldest_reader INTEGER;
