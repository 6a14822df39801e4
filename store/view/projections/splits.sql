-- Deciding the sides of new theorems, at the closing of a commit's trace. Named; read by store.view.projections.splits.
-- Temporary tables hold the work; `ord` is a record's place in the commit (path, then place in the file).

-- name: arrived
INSERT INTO temp.arrived (content)
SELECT content FROM traced_files
WHERE repository = :repository AND line = :line AND until_seq IS NULL AND from_seq > (
    SELECT coalesce(max(seq), 0) FROM traces WHERE repository = :repository AND line = :line AND seq < :seq)
GROUP BY content ORDER BY min(path);

-- name: newcomers
INSERT INTO temp.newcomers ("key", name, content, theorem, new_key, new_name)
SELECT * FROM (
    SELECT t.split_key, t.full_name, t.content, t."index",
           NOT EXISTS (SELECT 1 FROM split_members AS m
                       WHERE m.split = 'random' AND m."of" = 'theorem' AND m."key" = t.split_key) AS new_key,
           NOT EXISTS (SELECT 1 FROM split_members AS m
                       WHERE m.split = 'random' AND m."of" = 'name' AND m."key" = t.full_name) AS new_name
    FROM temp.arrived AS a CROSS JOIN traced_theorems AS t ON t.content = a.content
    ORDER BY a.ord, t."index")
WHERE new_key OR new_name;

-- name: firsts
-- The first records with a new key or a new name.
INSERT INTO temp.firsts (ord, "key", name, by_key, by_name)
SELECT * FROM (
    SELECT ord, "key", name,
           new_key AND ord = min(ord) OVER (PARTITION BY "key") AS by_key,
           new_name AND ord = min(ord) OVER (PARTITION BY name) AS by_name
    FROM temp.newcomers)
WHERE by_key OR by_name ORDER BY ord;

-- name: units
-- New by key and by name: only these are decided. Whatever else is new follows one of them, or an older one.
INSERT INTO temp.units (unit, "key") SELECT ord, "key" FROM temp.firsts WHERE by_key AND by_name ORDER BY ord;

-- name: lead_units
INSERT INTO temp.leaders ("of", "key", unit)
SELECT 'theorem', "key", ord FROM temp.firsts WHERE by_key AND by_name
UNION ALL SELECT 'name', name, ord FROM temp.firsts WHERE by_key AND by_name ORDER BY 1, 2;

-- name: lead_restated
-- A new statement of a known name.
INSERT INTO temp.leaders ("of", "key", leader_of, leader_key)
SELECT 'theorem', f."key", 'name', f.name
FROM temp.firsts AS f JOIN temp.newcomers AS n ON n.ord = f.ord
WHERE f.by_key AND NOT n.new_name ORDER BY 2;

-- name: lead_renamed
-- A new name of a known statement.
INSERT INTO temp.leaders ("of", "key", leader_of, leader_key)
SELECT 'name', f.name, 'theorem', f."key"
FROM temp.firsts AS f JOIN temp.newcomers AS n ON n.ord = f.ord
WHERE f.by_name AND NOT n.new_key ORDER BY 2;

-- name: still_unled
-- Records with the key, or the name, of an earlier one in the same commit, in its order.
SELECT f."key", f.name, f.by_key
FROM temp.firsts AS f JOIN temp.newcomers AS n ON n.ord = f.ord
WHERE n.new_key AND n.new_name AND f.by_key <> f.by_name ORDER BY f.ord;

-- name: lead_by_name
INSERT INTO temp.leaders ("of", "key", unit, leader_of, leader_key)
SELECT 'theorem', :key, unit, leader_of, leader_key FROM temp.leaders WHERE "of" = 'name' AND "key" = :name;

-- name: lead_by_key
INSERT INTO temp.leaders ("of", "key", unit, leader_of, leader_key)
SELECT 'name', :name, unit, leader_of, leader_key FROM temp.leaders WHERE "of" = 'theorem' AND "key" = :key;

-- name: follow
INSERT INTO split_members (split, "of", "key", side, seq)
SELECT :split, l."of", l."key", m.side, :seq
FROM temp.leaders AS l CROSS JOIN split_members AS m
  ON m.split = :split AND m."of" = l.leader_of AND m."key" = l.leader_key
WHERE l.unit IS NULL;

-- name: join_units
INSERT INTO split_members (split, "of", "key", side, seq)
SELECT :split, l."of", l."key", u.side, :seq
FROM temp.leaders AS l CROSS JOIN temp.units AS u ON u.unit = l.unit
WHERE l.unit IS NOT NULL;

-- name: uses
INSERT INTO temp.uses (premise, unit)
SELECT DISTINCT p.full_name, l.unit
FROM temp.newcomers AS n
CROSS JOIN temp.leaders AS l ON l."of" = 'theorem' AND l."key" = n."key"
CROSS JOIN tactic_premises AS p ON p.content = n.content AND p.theorem = n.theorem
WHERE n.new_key AND l.unit IS NOT NULL ORDER BY 1, 2;

-- name: users
INSERT INTO temp.users (premise, n) SELECT premise, count(*) FROM temp.uses GROUP BY premise;

-- name: with_premises
UPDATE temp.units SET with_premises = 1 WHERE unit IN (SELECT unit FROM temp.uses);

-- name: hold_users_of_reserved
UPDATE temp.units SET held_out = 1 WHERE unit IN (
    SELECT uses.unit FROM temp.users CROSS JOIN reserved_premises AS r ON r.full_name = users.premise
    CROSS JOIN temp.uses ON uses.premise = users.premise);

-- name: candidates
SELECT premise, n FROM temp.users
WHERE NOT EXISTS (SELECT 1 FROM reserved_premises AS r WHERE r.full_name = users.premise)
ORDER BY n, premise_rank(premise), premise;

-- name: is_trained_on
SELECT EXISTS (
    SELECT 1 FROM tactic_premises AS p
    CROSS JOIN traced_theorems AS t ON t.content = p.content AND t."index" = p.theorem
    CROSS JOIN split_members AS m ON m.split = 'novel_premises' AND m."of" = 'theorem' AND m."key" = t.split_key
    WHERE p.full_name = :premise AND m.side = 'train');

-- name: free_users
SELECT count(*) FROM temp.uses CROSS JOIN temp.units ON units.unit = uses.unit
WHERE uses.premise = :premise AND units.held_out = 0;

-- name: hold_users
UPDATE temp.units SET held_out = 1 WHERE held_out = 0 AND unit IN (
    SELECT unit FROM temp.uses WHERE premise = :premise);

-- name: tally
INSERT INTO split_tallies (split, side, theorems)
SELECT 'novel_premises', side, count(*) FROM temp.units WHERE with_premises GROUP BY side
ON CONFLICT (split, side) DO UPDATE SET theorems = theorems + excluded.theorems;
