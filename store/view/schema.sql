-- Written by `make docs` from store/view/table_models.py.

CREATE TABLE attempts (
	sorry TEXT NOT NULL,
	blob TEXT NOT NULL,
	prover TEXT NOT NULL,
	rung INTEGER NOT NULL,
	model TEXT NOT NULL,
	budget TEXT NOT NULL,
	repository TEXT NOT NULL,
	branch TEXT NOT NULL,
	sha TEXT NOT NULL,
	outcome TEXT NOT NULL,
	detail TEXT NOT NULL,
	nodes INTEGER NOT NULL,
	repl_calls INTEGER NOT NULL,
	seconds REAL NOT NULL,
	seed INTEGER NOT NULL,
	best TEXT NOT NULL,
	goals_left INTEGER,
	prompt_tokens INTEGER NOT NULL,
	completion_tokens INTEGER NOT NULL,
	usd REAL,
	tree_sha256 TEXT,
	simulated INTEGER NOT NULL,
	job TEXT NOT NULL,
	recorded_at TEXT NOT NULL,
	PRIMARY KEY (sorry, blob, prover, rung, model, budget)
) STRICT;

CREATE TABLE branches (
	repository TEXT NOT NULL,
	branch TEXT NOT NULL,
	state TEXT NOT NULL,
	tip TEXT NOT NULL,
	scanned TEXT,
	scanned_seq INTEGER,
	scanned_include_json TEXT NOT NULL,
	scanned_exclude_json TEXT NOT NULL,
	toolchain TEXT,
	manifest TEXT,
	challenges_json TEXT,
	rewrites INTEGER NOT NULL,
	PRIMARY KEY (repository, branch)
) STRICT;

CREATE TABLE builds (
	repository TEXT NOT NULL,
	sha TEXT NOT NULL,
	seq INTEGER NOT NULL,
	branch TEXT NOT NULL,
	toolchain TEXT NOT NULL,
	dependencies TEXT NOT NULL,
	modules_failed_json TEXT NOT NULL,
	size_bytes INTEGER NOT NULL,
	seconds REAL NOT NULL,
	built_at TEXT NOT NULL,
	PRIMARY KEY (repository, sha)
) STRICT;

CREATE TABLE bumps (
	repository TEXT NOT NULL,
	bump TEXT NOT NULL,
	seq INTEGER NOT NULL,
	toolchain TEXT NOT NULL,
	package TEXT NOT NULL,
	rev TEXT NOT NULL,
	"by" TEXT NOT NULL,
	since TEXT NOT NULL,
	branch TEXT,
	sha TEXT,
	job TEXT,
	broken_json TEXT NOT NULL,
	mended_json TEXT NOT NULL,
	left_json TEXT NOT NULL,
	modules_failed_json TEXT NOT NULL,
	tried INTEGER NOT NULL,
	unrecorded INTEGER NOT NULL,
	series_sha256 TEXT,
	finished_at TEXT,
	PRIMARY KEY (repository, bump)
) STRICT;

CREATE TABLE checkpoints (
	checkpoint TEXT NOT NULL,
	model TEXT NOT NULL,
	parent TEXT,
	base TEXT NOT NULL,
	data_seq INTEGER NOT NULL,
	config_json TEXT NOT NULL,
	seed INTEGER NOT NULL,
	steps INTEGER NOT NULL,
	weights TEXT NOT NULL,
	size_bytes INTEGER NOT NULL,
	fisher TEXT,
	curve TEXT,
	versions_json TEXT NOT NULL,
	device TEXT NOT NULL,
	seconds REAL NOT NULL,
	job TEXT NOT NULL,
	simulated INTEGER NOT NULL,
	saved_at TEXT NOT NULL,
	promoted INTEGER NOT NULL,
	promoted_at TEXT,
	reason TEXT NOT NULL,
	refused_at TEXT,
	refused_reason TEXT NOT NULL,
	removed_at TEXT,
	removed_reason TEXT NOT NULL,
	PRIMARY KEY (checkpoint)
) STRICT;

CREATE INDEX checkpoints_in_use ON checkpoints (model, promoted);

CREATE INDEX checkpoints_undecided ON checkpoints (promoted_at, refused_at);

CREATE TABLE claims (
	sorry TEXT NOT NULL,
	repository TEXT NOT NULL,
	claim TEXT NOT NULL,
	agent TEXT NOT NULL,
	"by" TEXT NOT NULL,
	since TEXT NOT NULL,
	until TEXT NOT NULL,
	PRIMARY KEY (sorry)
) STRICT;

CREATE TABLE commits (
	repository TEXT NOT NULL,
	branch TEXT NOT NULL,
	sha TEXT NOT NULL,
	seq INTEGER NOT NULL,
	parent TEXT,
	author TEXT NOT NULL,
	subject TEXT NOT NULL,
	committed_at TEXT NOT NULL,
	observed_at TEXT NOT NULL,
	baseline INTEGER NOT NULL,
	state TEXT NOT NULL,
	files_scanned INTEGER,
	files_failed INTEGER,
	seconds REAL,
	PRIMARY KEY (repository, branch, sha)
) STRICT;

CREATE INDEX commits_by_state ON commits (repository, branch, state, seq);

CREATE TABLE declarations (
	repository TEXT NOT NULL,
	branch TEXT NOT NULL,
	path TEXT NOT NULL,
	"index" INTEGER NOT NULL,
	theorem TEXT NOT NULL,
	name TEXT NOT NULL,
	kind TEXT NOT NULL,
	statement TEXT NOT NULL,
	statement_hash TEXT NOT NULL,
	text_hash TEXT NOT NULL,
	line INTEGER NOT NULL,
	"column" INTEGER NOT NULL,
	end_line INTEGER NOT NULL,
	end_column INTEGER NOT NULL,
	n_sorries INTEGER NOT NULL,
	PRIMARY KEY (repository, branch, path, "index")
) STRICT;

CREATE INDEX ix_declarations_name ON declarations (name);

CREATE TABLE evaluations (
	evaluation TEXT NOT NULL,
	model TEXT NOT NULL,
	checkpoint TEXT NOT NULL,
	repository TEXT,
	split TEXT NOT NULL,
	dataset TEXT NOT NULL,
	metrics_json TEXT NOT NULL,
	n INTEGER NOT NULL,
	seconds REAL NOT NULL,
	job TEXT NOT NULL,
	simulated INTEGER NOT NULL,
	recorded_at TEXT NOT NULL,
	scores TEXT,
	PRIMARY KEY (evaluation)
) STRICT;

CREATE INDEX evaluations_by_checkpoint ON evaluations (checkpoint);

CREATE TABLE files (
	repository TEXT NOT NULL,
	branch TEXT NOT NULL,
	path TEXT NOT NULL,
	blob TEXT NOT NULL,
	sha TEXT NOT NULL,
	error TEXT,
	imports_json TEXT NOT NULL,
	n_declarations INTEGER NOT NULL,
	n_sorries INTEGER NOT NULL,
	exercise_words INTEGER,
	declarations_taken INTEGER,
	sorries_taken INTEGER,
	marked_json TEXT NOT NULL,
	PRIMARY KEY (repository, branch, path)
) STRICT;

CREATE INDEX files_marked ON files (repository, branch, path) WHERE marked_json <> '[]';

CREATE INDEX files_too_large ON files (repository, branch) WHERE declarations_taken IS NOT NULL OR sorries_taken IS NOT NULL;

CREATE TABLE imports (
	content INTEGER NOT NULL,
	position INTEGER NOT NULL,
	path TEXT NOT NULL,
	PRIMARY KEY (content, position)
) STRICT;

CREATE TABLE job_attempts (
	job TEXT NOT NULL,
	attempt INTEGER NOT NULL,
	kind TEXT NOT NULL,
	started_at TEXT NOT NULL,
	ended_at TEXT,
	outcome TEXT,
	PRIMARY KEY (job, attempt)
) STRICT;

CREATE INDEX job_attempts_by_end ON job_attempts (ended_at);

CREATE TABLE job_tallies (
	kind TEXT NOT NULL,
	outcome TEXT NOT NULL,
	simulated INTEGER NOT NULL,
	bucket INTEGER NOT NULL,
	n INTEGER NOT NULL,
	seconds REAL NOT NULL,
	PRIMARY KEY (kind, outcome, simulated, bucket)
) STRICT;

CREATE TABLE jobs (
	job TEXT NOT NULL,
	kind TEXT NOT NULL,
	state TEXT NOT NULL,
	attempt INTEGER NOT NULL,
	repository TEXT,
	branch TEXT,
	sha TEXT,
	describes TEXT NOT NULL,
	simulated INTEGER NOT NULL,
	started_at TEXT NOT NULL,
	ended_at TEXT,
	seconds REAL,
	peak_rss_bytes INTEGER,
	reason TEXT NOT NULL,
	message TEXT NOT NULL,
	remedy TEXT NOT NULL,
	deterministic INTEGER NOT NULL,
	retry_at TEXT,
	summary_json TEXT NOT NULL,
	PRIMARY KEY (job)
) STRICT;

CREATE INDEX jobs_by_start ON jobs (started_at);

CREATE INDEX jobs_by_state ON jobs (state, kind);

CREATE TABLE notifiers (
	channel TEXT NOT NULL,
	kinds_json TEXT NOT NULL,
	position INTEGER NOT NULL,
	messages INTEGER NOT NULL,
	told INTEGER NOT NULL,
	problem TEXT NOT NULL,
	reason TEXT NOT NULL,
	remedy TEXT NOT NULL,
	failing_since TEXT,
	sent_at TEXT,
	digest_at TEXT,
	PRIMARY KEY (channel)
) STRICT;

CREATE TABLE pauses (
	work TEXT NOT NULL,
	"by" TEXT NOT NULL,
	reason TEXT NOT NULL,
	since TEXT NOT NULL,
	PRIMARY KEY (work)
) STRICT;

CREATE TABLE poll_states (
	repository TEXT NOT NULL,
	checked_at TEXT NOT NULL,
	next_due_at TEXT NOT NULL,
	outcome TEXT NOT NULL,
	etag TEXT,
	PRIMARY KEY (repository)
) STRICT;

CREATE TABLE premises (
	content INTEGER NOT NULL,
	"index" INTEGER NOT NULL,
	full_name TEXT,
	kind TEXT NOT NULL,
	code TEXT NOT NULL,
	line INTEGER NOT NULL,
	"column" INTEGER NOT NULL,
	end_line INTEGER NOT NULL,
	end_column INTEGER NOT NULL,
	PRIMARY KEY (content, "index")
) STRICT;

CREATE INDEX premises_by_name ON premises (full_name);

CREATE TABLE proof_tallies (
	verdict TEXT NOT NULL,
	simulated INTEGER NOT NULL,
	n INTEGER NOT NULL,
	PRIMARY KEY (verdict, simulated)
) STRICT;

CREATE TABLE proofs (
	proof TEXT NOT NULL,
	sorry TEXT NOT NULL,
	repository TEXT NOT NULL,
	branch TEXT NOT NULL,
	sha TEXT NOT NULL,
	path TEXT NOT NULL,
	blob TEXT NOT NULL,
	byte_start INTEGER NOT NULL,
	byte_end INTEGER NOT NULL,
	declaration TEXT NOT NULL,
	declaration_text_hash TEXT NOT NULL,
	replacement TEXT NOT NULL,
	tactics_json TEXT NOT NULL,
	prover TEXT NOT NULL,
	rung INTEGER NOT NULL,
	toolchain TEXT NOT NULL,
	simulated INTEGER NOT NULL,
	state TEXT NOT NULL,
	checks_json TEXT NOT NULL,
	not_checked_json TEXT NOT NULL,
	axioms_json TEXT NOT NULL,
	grade TEXT NOT NULL,
	kernel TEXT NOT NULL,
	judge TEXT NOT NULL,
	doubts_json TEXT NOT NULL,
	checked_sha TEXT NOT NULL,
	checked_blob TEXT NOT NULL,
	checked_start INTEGER NOT NULL,
	conditional_on_json TEXT NOT NULL,
	reason TEXT NOT NULL,
	patch_sha256 TEXT,
	pull_request_url TEXT,
	pull_request_at TEXT,
	found_at TEXT NOT NULL,
	checked_at TEXT,
	job TEXT NOT NULL,
	checked_job TEXT,
	PRIMARY KEY (proof)
) STRICT;

CREATE INDEX ix_proofs_sorry ON proofs (sorry);

CREATE INDEX ix_proofs_state ON proofs (state);

CREATE TABLE repositories (
	repository TEXT NOT NULL,
	url TEXT NOT NULL,
	forge_id INTEGER,
	watched INTEGER NOT NULL,
	enabled INTEGER NOT NULL,
	opt_out INTEGER NOT NULL,
	every_s REAL NOT NULL,
	branches_json TEXT NOT NULL,
	include_json TEXT NOT NULL,
	exclude_json TEXT NOT NULL,
	default_branch TEXT,
	state TEXT NOT NULL,
	reason TEXT NOT NULL,
	remedy TEXT NOT NULL,
	failing_since TEXT,
	failing_told INTEGER NOT NULL,
	archived INTEGER NOT NULL,
	first_seen_at TEXT NOT NULL,
	PRIMARY KEY (repository)
) STRICT;

CREATE TABLE reserved_premises (
	full_name TEXT NOT NULL,
	seq INTEGER NOT NULL,
	PRIMARY KEY (full_name)
) STRICT;

CREATE TABLE service (
	id INTEGER NOT NULL,
	version TEXT NOT NULL,
	pid INTEGER,
	host TEXT NOT NULL,
	lean TEXT NOT NULL,
	lean_detail TEXT NOT NULL,
	started_at TEXT,
	stopped_at TEXT,
	stop_reason TEXT NOT NULL,
	config_path TEXT NOT NULL,
	config_digest TEXT NOT NULL,
	config_loaded_at TEXT,
	config_errors_json TEXT NOT NULL,
	config_rejected_at TEXT,
	PRIMARY KEY (id)
) STRICT;

CREATE TABLE sorries (
	repository TEXT NOT NULL,
	branch TEXT NOT NULL,
	sorry TEXT NOT NULL,
	state TEXT NOT NULL,
	declaration TEXT NOT NULL,
	kind TEXT NOT NULL,
	statement TEXT NOT NULL,
	statement_hash TEXT NOT NULL,
	ordinal INTEGER NOT NULL,
	token TEXT NOT NULL,
	mode TEXT NOT NULL,
	path TEXT NOT NULL,
	blob TEXT NOT NULL,
	line INTEGER NOT NULL,
	"column" INTEGER NOT NULL,
	byte_start INTEGER NOT NULL,
	byte_end INTEGER NOT NULL,
	context_hash TEXT NOT NULL,
	opened_sha TEXT NOT NULL,
	opened_at TEXT NOT NULL,
	updated_sha TEXT NOT NULL,
	closed_sha TEXT,
	filled_by TEXT,
	verified_proof TEXT,
	PRIMARY KEY (repository, branch, sorry)
) STRICT;

CREATE INDEX ix_sorries_state ON sorries (state);

CREATE INDEX sorries_by_branch ON sorries (repository, branch, state);

CREATE INDEX sorries_by_id ON sorries (sorry);

CREATE INDEX sorries_by_path ON sorries (repository, branch, path);

CREATE TABLE sorry_goals (
	repository TEXT NOT NULL,
	branch TEXT NOT NULL,
	sorry TEXT NOT NULL,
	goal TEXT NOT NULL,
	sha TEXT NOT NULL,
	statement_hash TEXT NOT NULL,
	context_hash TEXT NOT NULL,
	simulated INTEGER NOT NULL,
	stated_at TEXT NOT NULL,
	PRIMARY KEY (repository, branch, sorry)
) STRICT;

CREATE TABLE sorry_steps (
	repository TEXT NOT NULL,
	branch TEXT NOT NULL,
	sorry TEXT NOT NULL,
	seq INTEGER NOT NULL,
	step TEXT NOT NULL,
	sha TEXT NOT NULL,
	recorded_at TEXT NOT NULL,
	detail TEXT NOT NULL,
	PRIMARY KEY (repository, branch, sorry, seq)
) STRICT;

CREATE TABLE split_members (
	split TEXT NOT NULL,
	"of" TEXT NOT NULL,
	"key" TEXT NOT NULL,
	side TEXT NOT NULL,
	seq INTEGER NOT NULL,
	PRIMARY KEY (split, "of", "key")
)
 WITHOUT ROWID, STRICT;

CREATE TABLE split_tallies (
	split TEXT NOT NULL,
	side TEXT NOT NULL,
	theorems INTEGER NOT NULL,
	PRIMARY KEY (split, side)
) STRICT;

CREATE TABLE tactic_premises (
	content INTEGER NOT NULL,
	theorem INTEGER NOT NULL,
	tactic INTEGER NOT NULL,
	position INTEGER NOT NULL,
	full_name TEXT NOT NULL,
	def_path TEXT NOT NULL,
	def_line INTEGER NOT NULL,
	def_column INTEGER NOT NULL,
	def_end_line INTEGER NOT NULL,
	def_end_column INTEGER NOT NULL,
	PRIMARY KEY (content, theorem, tactic, position)
) STRICT;

CREATE INDEX tactic_premises_by_name ON tactic_premises (full_name);

CREATE TABLE tallies (
	repository TEXT NOT NULL,
	branch TEXT NOT NULL,
	kind TEXT NOT NULL,
	declarations INTEGER NOT NULL,
	PRIMARY KEY (repository, branch, kind)
) STRICT;

CREATE TABLE theorem_premises (
	content INTEGER NOT NULL,
	theorem INTEGER NOT NULL,
	position INTEGER NOT NULL,
	full_name TEXT NOT NULL,
	def_path TEXT,
	def_line INTEGER,
	def_column INTEGER,
	def_end_line INTEGER,
	def_end_column INTEGER,
	PRIMARY KEY (content, theorem, position)
) STRICT;

CREATE INDEX theorem_premises_by_name ON theorem_premises (full_name);

CREATE TABLE theorem_versions (
	repository TEXT NOT NULL,
	branch TEXT NOT NULL,
	theorem TEXT NOT NULL,
	seq INTEGER NOT NULL,
	steps TEXT NOT NULL,
	sha TEXT NOT NULL,
	recorded_at TEXT NOT NULL,
	name TEXT NOT NULL,
	path TEXT NOT NULL,
	statement TEXT NOT NULL,
	statement_hash TEXT NOT NULL,
	text_hash TEXT NOT NULL,
	n_sorries INTEGER NOT NULL,
	PRIMARY KEY (repository, branch, theorem, seq)
) STRICT;

CREATE TABLE theorems (
	repository TEXT NOT NULL,
	branch TEXT NOT NULL,
	theorem TEXT NOT NULL,
	identity TEXT NOT NULL,
	state TEXT NOT NULL,
	name TEXT NOT NULL,
	kind TEXT NOT NULL,
	statement TEXT NOT NULL,
	statement_hash TEXT NOT NULL,
	text_hash TEXT NOT NULL,
	path TEXT NOT NULL,
	first_sha TEXT NOT NULL,
	first_seen_at TEXT NOT NULL,
	last_sha TEXT NOT NULL,
	versions INTEGER NOT NULL,
	PRIMARY KEY (repository, branch, theorem)
) STRICT;

CREATE INDEX theorems_by_identity ON theorems (repository, branch, identity);

CREATE INDEX theorems_by_name ON theorems (name);

CREATE TABLE trace_measures (
	repository TEXT NOT NULL,
	line TEXT NOT NULL,
	simulated INTEGER NOT NULL,
	trace TEXT NOT NULL,
	sha TEXT NOT NULL,
	seq INTEGER NOT NULL,
	files_seen INTEGER NOT NULL,
	files_traced INTEGER NOT NULL,
	theorems_seen INTEGER NOT NULL,
	theorems_traced INTEGER NOT NULL,
	tactics_seen INTEGER NOT NULL,
	tactics_traced INTEGER NOT NULL,
	n_dependencies INTEGER NOT NULL,
	gaps_json TEXT NOT NULL,
	measured_at TEXT NOT NULL,
	PRIMARY KEY (repository, line, simulated)
) STRICT;

CREATE TABLE traced_contents (
	content INTEGER NOT NULL,
	sha256 TEXT NOT NULL,
	in_corpus INTEGER NOT NULL,
	n_theorems INTEGER NOT NULL,
	n_premises INTEGER NOT NULL,
	n_tactics INTEGER NOT NULL,
	seen_json TEXT,
	gaps_json TEXT NOT NULL,
	PRIMARY KEY (content),
	UNIQUE (sha256)
) STRICT;

CREATE TABLE traced_files (
	repository TEXT NOT NULL,
	line TEXT NOT NULL,
	path TEXT NOT NULL,
	from_seq INTEGER NOT NULL,
	until_seq INTEGER,
	content INTEGER NOT NULL,
	sha TEXT NOT NULL,
	error TEXT,
	"key" TEXT NOT NULL,
	PRIMARY KEY (repository, line, path, from_seq)
) STRICT;

CREATE INDEX traced_files_by_content ON traced_files (content);

CREATE INDEX traced_files_now ON traced_files (repository, line, until_seq, from_seq);

CREATE TABLE traced_tactics (
	content INTEGER NOT NULL,
	theorem INTEGER NOT NULL,
	"index" INTEGER NOT NULL,
	tactic TEXT NOT NULL,
	annotated TEXT NOT NULL,
	state_before TEXT NOT NULL,
	state_after TEXT NOT NULL,
	PRIMARY KEY (content, theorem, "index")
) STRICT;

CREATE TABLE traced_theorems (
	content INTEGER NOT NULL,
	"index" INTEGER NOT NULL,
	full_name TEXT NOT NULL,
	statement TEXT,
	split_key TEXT NOT NULL,
	line INTEGER NOT NULL,
	"column" INTEGER NOT NULL,
	end_line INTEGER NOT NULL,
	end_column INTEGER NOT NULL,
	n_tactics INTEGER NOT NULL,
	has_sorry INTEGER NOT NULL,
	url TEXT,
	"commit" TEXT,
	PRIMARY KEY (content, "index")
) STRICT;

CREATE INDEX traced_theorems_by_name ON traced_theorems (full_name);

CREATE INDEX traced_theorems_by_split ON traced_theorems (split_key, content);

CREATE TABLE traces (
	trace TEXT NOT NULL,
	repository TEXT NOT NULL,
	line TEXT NOT NULL,
	sha TEXT NOT NULL,
	seq INTEGER NOT NULL,
	state TEXT NOT NULL,
	url TEXT NOT NULL,
	name TEXT NOT NULL,
	lean_version TEXT NOT NULL,
	tracer TEXT NOT NULL,
	tracer_version TEXT NOT NULL,
	source TEXT NOT NULL,
	simulated INTEGER NOT NULL,
	pr_url TEXT,
	metadata_json TEXT NOT NULL,
	manifest_sha256 TEXT,
	files_traced INTEGER NOT NULL,
	files_failed INTEGER NOT NULL,
	n_theorems INTEGER NOT NULL,
	n_premises INTEGER NOT NULL,
	n_tactics INTEGER NOT NULL,
	traced_at TEXT NOT NULL,
	PRIMARY KEY (trace)
) STRICT;

CREATE INDEX traces_by_repository ON traces (repository, sha);

CREATE TABLE triggers (
	work TEXT NOT NULL,
	repository TEXT NOT NULL,
	seq INTEGER NOT NULL,
	"by" TEXT NOT NULL,
	triggered_at TEXT NOT NULL,
	job TEXT,
	ended TEXT,
	PRIMARY KEY (work, repository)
) STRICT;

CREATE TABLE unfinished_scans (
	repository TEXT NOT NULL,
	branch TEXT NOT NULL,
	attempt TEXT NOT NULL,
	version INTEGER NOT NULL,
	PRIMARY KEY (repository, branch)
) STRICT;

CREATE TABLE view_position (
	projection TEXT NOT NULL,
	version INTEGER NOT NULL,
	seq INTEGER NOT NULL,
	event_id TEXT NOT NULL,
	stopped_seq INTEGER,
	stopped_reason TEXT NOT NULL,
	PRIMARY KEY (projection)
) STRICT;
