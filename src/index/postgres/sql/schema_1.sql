-- The shared index, first version. Plain tables, sequences and indexes: nothing that only one engine has.

CREATE SEQUENCE epochs;
CREATE SEQUENCE turns;
CREATE SEQUENCE host_ids;
CREATE SEQUENCE doc_ids;

-- A server that runs. Its epoch is its fencing token: new with every start, and whenever all was lost.
CREATE TABLE instances (
    epoch bigint PRIMARY KEY,
    name text NOT NULL,
    -- From then on its claims under which nothing is in flight may be taken,
    expires_1 timestamptz NOT NULL,
    -- and from then on all of them.
    expires_2 timestamptz NOT NULL,
    -- How many were.
    losses bigint NOT NULL DEFAULT 0
);
CREATE INDEX instances_by_expiry ON instances (expires_1);

CREATE TABLE hosts (
    host_id bigint PRIMARY KEY DEFAULT nextval('host_ids'),
    host text NOT NULL UNIQUE,
    -- The place of its next document in its line; raised under the row's lock, so that a reader never passes a
    -- place that is filled later.
    next_place bigint NOT NULL DEFAULT 1,
    -- The place of the host in the line of hosts with open documents; null if it has none.
    turn bigint,
    -- The claim: whose it is, and whether something may be in flight under it.
    holder bigint,
    in_flight boolean NOT NULL DEFAULT false,
    -- Who shall have it, for a while.
    affinity bigint,
    affinity_until timestamptz,
    -- The clock, as of when it was last given back or noted.
    opens_at timestamptz,
    held_until timestamptz,
    strikes smallint NOT NULL DEFAULT 0,
    -- Until then a holder that was lost may have sent.
    dark_until timestamptz
);
CREATE INDEX hosts_free ON hosts (turn) WHERE holder IS NULL AND affinity IS NULL AND turn IS NOT NULL;
CREATE INDEX hosts_for ON hosts (affinity, turn) WHERE holder IS NULL AND affinity IS NOT NULL;
CREATE INDEX hosts_promised ON hosts (affinity_until) WHERE holder IS NULL AND affinity IS NOT NULL;
CREATE INDEX hosts_held ON hosts (holder, in_flight) WHERE holder IS NOT NULL;

-- Addresses, aliases and groups: their claims and clocks.
CREATE TABLE keys (
    key text PRIMARY KEY,
    holder bigint,
    in_flight boolean NOT NULL DEFAULT false,
    -- Who needs it more than its holder.
    wanted_by bigint,
    opens_at timestamptz,
    held_until timestamptz,
    strikes smallint NOT NULL DEFAULT 0,
    dark_until timestamptz
);
CREATE INDEX keys_held ON keys (holder, in_flight) WHERE holder IS NOT NULL;
CREATE INDEX keys_wanted ON keys (holder) WHERE wanted_by IS NOT NULL;

CREATE TABLE docs (
    -- DOC_ID as a signed number: those from 2^63 on are negative.
    doc bigint PRIMARY KEY,
    host_id bigint NOT NULL,
    place bigint NOT NULL,
    -- The URL's fingerprint.
    print bigint NOT NULL,
    url text NOT NULL,
    -- Not to be sent before this time, in seconds since 1970.
    not_before bigint,
    -- 0 open, 1 DONE, 2 FAILED, 3 DENIED.
    state smallint NOT NULL DEFAULT 0,
    outcome text,
    ended_at timestamptz,
    -- The epoch of the server that said so.
    ended_by bigint
);
CREATE UNIQUE INDEX docs_known ON docs (host_id, print);
CREATE INDEX docs_open ON docs (host_id, place) WHERE state = 0;
