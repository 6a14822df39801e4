-- Queries beyond "these columns of one table". Named; read by store.view.queries.

-- name: repositories
SELECT repositories.repository, url, forge_id, watched, enabled, opt_out, every_s, branches_json, include_json,
       exclude_json, projects_json, default_branch, state, reason, remedy, failing_since, failing_told, archived,
       private, replaced_by, first_seen_at,
       poll_states.checked_at, poll_states.next_due_at, poll_states.outcome, poll_states.etag
FROM repositories LEFT JOIN poll_states ON poll_states.repository = repositories.repository;

-- name: next_commit_to_scan
JOIN branches ON branches.repository = commits.repository AND branches.branch = commits.branch
WHERE commits.repository = :repository AND commits.branch = :branch
  AND commits.state = 'observed' AND branches.state = 'live'
ORDER BY commits.seq LIMIT 1;

-- name: sorries_to_prove
JOIN branches ON branches.repository = sorries.repository AND branches.branch = sorries.branch
JOIN files ON files.repository = sorries.repository AND files.branch = sorries.branch AND files.path = sorries.path
WHERE sorries.repository = :repository AND sorries.branch = :branch AND sorries.state = 'open'
  AND branches.state = 'live' AND files.blob = sorries.blob
  AND NOT EXISTS (
      SELECT 1 FROM attempts
      WHERE attempts.sorry = sorries.sorry AND attempts.blob = sorries.blob AND attempts.prover = :prover
        AND attempts.rung = :rung AND attempts.model = :model AND attempts.budget = :budget)
ORDER BY sorries.path, sorries.byte_start, sorries.sorry;

-- name: stale_proofs
SELECT proof, why FROM (
SELECT proofs.proof AS proof,
       CASE WHEN branches.state IS NOT 'live' THEN 'its branch is not followed any more'
            WHEN sorries.state = 'filled' THEN 'its sorry is filled'
            WHEN sorries.state IS NULL OR sorries.state = 'removed' THEN 'its sorry is gone'
            WHEN files.blob IS NULL THEN 'its file is gone'
            WHEN files.blob IS NOT proofs.checked_blob THEN 'its file changed' END AS why
FROM proofs
LEFT JOIN branches ON branches.repository = proofs.repository AND branches.branch = proofs.branch
LEFT JOIN sorries ON sorries.repository = proofs.repository AND sorries.branch = proofs.branch
    AND sorries.sorry = proofs.sorry
LEFT JOIN files ON files.repository = proofs.repository AND files.branch = proofs.branch AND files.path = proofs.path
WHERE :sorry IS NULL OR proofs.sorry = :sorry)
WHERE why IS NOT NULL;

-- name: known_proofs
WITH alike AS (
    SELECT mine.sorry AS sorry, other.sorry AS of
    FROM sorries AS mine
    JOIN sorries AS other ON other.repository = mine.repository AND other.statement_hash = mine.statement_hash
        AND other.ordinal = mine.ordinal
    WHERE mine.repository = :repository AND mine.sorry IN (SELECT value FROM json_each(:sorries))
    UNION
    SELECT mine.sorry, other.sorry
    FROM sorry_goals AS mine
    JOIN sorry_goals AS other ON other.repository = mine.repository AND other.goal = mine.goal
    WHERE mine.repository = :repository AND mine.sorry IN (SELECT value FROM json_each(:sorries)))
SELECT alike.sorry, proofs.proof, alike.of, proofs.tactics_json
FROM alike JOIN proofs ON proofs.sorry = alike.of
WHERE proofs.repository = :repository AND proofs.state = 'verified'
ORDER BY alike.sorry, proofs.found_at DESC, proofs.proof;

-- name: citable_proofs
SELECT sorries.sorry, proofs.proof, sorries.declaration, sorries.statement, coalesce(sorry_goals.goal, ''),
       proofs.tactics_json
FROM sorries
JOIN proofs ON proofs.sorry = sorries.sorry AND proofs.repository = sorries.repository
LEFT JOIN sorry_goals ON sorry_goals.repository = sorries.repository AND sorry_goals.branch = sorries.branch
    AND sorry_goals.sorry = sorries.sorry
    AND sorry_goals.statement_hash = sorries.statement_hash AND sorry_goals.context_hash = sorries.context_hash
WHERE sorries.repository = :repository AND sorries.branch = :branch
  AND sorries.kind IN (SELECT value FROM json_each(:kinds))
  AND proofs.parts_json = '[]'
  AND sorries.state = 'verified' AND sorries.verified_proof = proofs.proof
ORDER BY proofs.found_at DESC, proofs.proof
LIMIT :most;
