-- The second version: what operators order, how often a document was tried, and holds of groups without limits are
-- known to all servers.

-- Orders are numbered: a larger number is a later word.
CREATE SEQUENCE orders;

ALTER TABLE hosts
    -- The gap between two sends that its last holder has kept, in microseconds, as far as it is more than others know.
    ADD COLUMN gap bigint NOT NULL DEFAULT 0,
    -- Nothing is sent until it is resumed,
    ADD COLUMN paused boolean NOT NULL DEFAULT false,
    -- or before then.
    ADD COLUMN blocked_until timestamptz,
    -- Least time between two sends, in microseconds.
    ADD COLUMN delay bigint NOT NULL DEFAULT 0,
    -- Paused, or blocked when somebody last looked: nobody claims it for its documents.
    ADD COLUMN stopped boolean NOT NULL DEFAULT false,
    -- The number of the last order; 0 if there never was one.
    ADD COLUMN ordered bigint NOT NULL DEFAULT 0,
    -- Whoever holds the host has not said yet that it knows.
    ADD COLUMN unheard boolean NOT NULL DEFAULT false;
DROP INDEX hosts_free;
CREATE INDEX hosts_free ON hosts (turn)
    WHERE holder IS NULL AND affinity IS NULL AND turn IS NOT NULL AND NOT stopped;
CREATE INDEX hosts_aside ON hosts (turn) WHERE holder IS NULL AND turn IS NOT NULL AND stopped;
CREATE INDEX hosts_blocked ON hosts (blocked_until) WHERE stopped AND NOT paused;
CREATE INDEX hosts_unheard ON hosts (holder, ordered) WHERE unheard;

-- A key that nobody needs to claim, since it has no limits: only its hold is kept, for all to read.
ALTER TABLE keys ADD COLUMN shared boolean NOT NULL DEFAULT false;
CREATE INDEX keys_shared ON keys (held_until) WHERE shared;

ALTER TABLE docs
    -- Sends that have ended without an end of the document, and those of them that ended with the loss of the spider.
    ADD COLUMN attempts integer NOT NULL DEFAULT 0,
    ADD COLUMN lost integer NOT NULL DEFAULT 0,
    -- Not to be sent again before.
    ADD COLUMN retry_at timestamptz;

-- What is ordered for everything.
CREATE TABLE fleet (
    id integer PRIMARY KEY,
    paused boolean NOT NULL,
    ordered bigint NOT NULL
);
INSERT INTO fleet (id, paused, ordered) VALUES (1, false, 0);

-- Locked by whatever a server does with its claims, so that words of its which were long on their way cannot come
-- after later ones.
CREATE TABLE guards (epoch bigint PRIMARY KEY);
