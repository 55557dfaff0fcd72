-- The script would run with the schema of whoever creates the extension in its
-- search path: an operator that somebody made in public, fitting better than the
-- server's own, would get into the views and run with the rights of their readers.
SET LOCAL search_path TO pg_catalog, pg_temp;

-- What the database must be like.  First, so that nothing has been done when it
-- is refused.

-- A publication of all tables would publish the history too, and subscribers
-- without these tables would stop replicating.
DO $do$
DECLARE
    publications text;
BEGIN
    IF coalesce(pg_catalog.current_setting('pg_lock_history.allow_published', true), 'off')::boolean THEN
        RETURN;
    END IF;
    SELECT pg_catalog.string_agg(pg_catalog.quote_ident(p.pubname), ', ' ORDER BY p.pubname) INTO publications
    FROM pg_catalog.pg_publication AS p
    WHERE p.puballtables;
    IF publications IS NOT NULL THEN
        RAISE EXCEPTION 'the history must not be in a database that publishes all tables'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  DETAIL = pg_catalog.format('Publication %s is FOR ALL TABLES and would send the history to its subscribers, which do not have the tables.', publications),
                  HINT = 'Create the extension in another database and name that in pg_lock_history.database, or set pg_lock_history.allow_published to on.';
    END IF;
END
$do$;
