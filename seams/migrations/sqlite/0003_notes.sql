-- What people and limits say about claims: small texts that only the kernel understands.
CREATE TABLE note (
  tenant TEXT NOT NULL,
  kind   TEXT NOT NULL,
  name   TEXT NOT NULL,
  body   TEXT NOT NULL,                            -- JSON
  PRIMARY KEY (tenant, kind, name)
) STRICT, WITHOUT ROWID;
