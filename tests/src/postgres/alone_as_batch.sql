-- Has a call that comes alone decided as a batch of one, so that the rules that ask for one thing at
-- a time are held against the batches too.
CREATE OR REPLACE FUNCTION operators.claim_one(
  acked text, its_tenant text, its_entity text, its_key text, its_session bigint,
  its_fingerprint text, its_effect text, its_on_unknown text, its_span bigint,
  its_revision bigint, its_receipt text, its_proposal text, its_stamp bigint,
  duplicate_1 text, duplicate_2 text, duplicate_3 text, duplicate_4 text,
  refusal_1 text, refusal_2 text, refusal_3 text, is_controlled boolean)
RETURNS text LANGUAGE sql AS $$
  SELECT operators.claim_many(acked, its_tenant, its_entity, its_key, its_session::text,
    its_fingerprint, its_effect, its_on_unknown, its_span::text,
    coalesce(its_revision::text, E'\x1e'), its_receipt, its_proposal, its_stamp::text,
    duplicate_1, duplicate_2, duplicate_3, duplicate_4, coalesce(refusal_1, E'\x1e'),
    coalesce(refusal_2, E'\x1e'), coalesce(refusal_3, E'\x1e'), is_controlled::text)
$$;

CREATE OR REPLACE FUNCTION operators.settle_one(
  acked text, its_tenant text, its_entity text, its_key text, its_session bigint,
  its_fence bigint, its_generation bigint, its_attempt bigint, its_receipt text, its_phase text,
  its_revision bigint, its_application text, its_stamp bigint, its_body text)
RETURNS text LANGUAGE sql AS $$
  SELECT operators.settle_many(acked, its_tenant, its_entity, its_key, its_session::text,
    its_fence::text, its_generation::text, its_attempt::text, its_receipt, its_phase,
    coalesce(its_revision::text, E'\x1e'), coalesce(its_application, E'\x1e'), its_stamp::text,
    its_body)
$$;
