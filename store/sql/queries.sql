-- Questions that do not fit "these columns of one table". Named; read by store.queries.

-- name: repositories
SELECT repositories.repository, url, forge_id, watched, enabled, opt_out, every_s, branches_json, include_json,
       exclude_json, default_branch, state, reason, remedy, first_seen_at,
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
        AND attempts.rung = :rung AND attempts.budget = :budget)
ORDER BY sorries.path, sorries.byte_start, sorries.sorry;
