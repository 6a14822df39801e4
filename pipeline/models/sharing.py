"""Shares a checkpoint: a folder for other programs, with a model card.

    sentence-transformers   `SentenceTransformer(folder)`: a retriever, with its pooling; an adapter is merged
    transformers            `AutoModel….from_pretrained(folder)`: a tactic or progress model's every weight
    peft                    `AutoPeftModel….from_pretrained(folder)`: a tactic model's adapter

Names of places on this machine are left out. The card (README.md) has the log's measures, beside those of the
baselines, as text and for the hub.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline.models.adapters import ADAPTER, adapters_of, base_of
from pipeline.models.chain import Chain
from pipeline.models.errors import LearningError, writing
from pipeline.models.measures import BASELINES, BOUNDS, baselines_of
from pipeline.models.model_files import ADAPTERS, DESCRIPTION, begun
from store.files import folder_written_whole
from store.promotion import task_name
from store.text import clean
from store.view import model_queries
from store.view.rows import CheckpointRow, EvaluationRow

Format = Literal["sentence-transformers", "transformers", "peft"]
_STAY = (DESCRIPTION, ADAPTERS, "training_args.bin")
_TASKS: Mapping[str, tuple[str, str]] = {
    "retriever": ("sentence-similarity", "premise retrieval"),
    "tactics": ("text-generation", "tactic prediction"),
    "progress": ("text-classification", "steps that remain"),
}
"""The hub's name of a model's task, and ours."""
_SIDES = {
    "random": "Theorems of the test side of the split, which is by a hash of the statement, were not trained on.",
    "novel_premises": (
        "The split is LeanDojo's novel_premises: each proof of its test side uses a premise that no proof that was "
        "trained on uses."
    ),
}
_LOAD: Mapping[tuple[str, Format], tuple[str, str]] = {
    ("retriever", "sentence-transformers"): ("sentence_transformers", "SentenceTransformer"),
    ("tactics", "transformers"): ("transformers", "AutoModelForCausalLM.from_pretrained"),
    ("tactics", "peft"): ("peft", "AutoPeftModelForCausalLM.from_pretrained"),
    ("progress", "transformers"): ("transformers", "AutoModelForSequenceClassification.from_pretrained"),
}
"""The module that loads a model, and the function in it."""


_CARD = Path(__file__).with_name("card.md")


class SharingError(LearningError):
    """A checkpoint cannot be written for others."""


@dataclass(frozen=True, slots=True)
class Shared:
    """The thing to share: a checkpoint of a chain, its row in the log's view, and the repositories it learned from.

    `repositories` are in the order of learning. Of a checkpoint with an adapter for each repository, that of
    `repository` is shared, and nothing of the others.

    Raises:
        SharingError: the checkpoint has adapters and the repository is none of theirs, or it has none and names one.
    """

    chain: Path
    row: CheckpointRow
    evaluations: Sequence[EvaluationRow]
    repositories: Sequence[str]
    repository: str | None = None

    def __post_init__(self) -> None:
        adapters = adapters_of(self.chain / self.row.checkpoint)
        if self.repository is not None and not adapters:
            raise SharingError(
                f"{self.row.checkpoint} has one model for all repositories: leave --repository out"
            )
        if adapters and self.repository not in adapters:
            raise SharingError(
                f"{self.row.checkpoint} has an adapter for each repository: name one with --repository, of "
                f"{', '.join(adapters)}"
            )

    @property
    def folder(self) -> Path:
        checkpoint = self.chain / self.row.checkpoint
        return checkpoint if self.repository is None else adapters_of(checkpoint)[self.repository]

    @property
    def learned(self) -> Sequence[str]:
        """The repositories behind the shared weights."""
        return self.repositories if self.repository is None else (self.repository,)

    @property
    def format(self) -> Format:
        if self.row.model == "retriever":
            return "sentence-transformers"
        return "peft" if (self.folder / ADAPTER).is_file() else "transformers"


def shared_of(
    view: sqlite3.Connection,
    models: Path,
    row: CheckpointRow,
    *,
    repository: str | None,
) -> Shared:
    """Return the shared part of a checkpoint: all of it, or a repository's adapter.

    Args:
        models: the folder of the chains.

    Raises:
        SharingError: its files were removed; or see `Shared`.
    """
    if row.removed_at is not None:
        raise SharingError(f"{row.checkpoint}: its files were removed, {clean(row.removed_reason)}")
    learned = model_queries.learned(view, row.model)
    links = reversed(model_queries.ancestry(learned, row.checkpoint))
    repositories = tuple(dict.fromkeys(link.repository for link in links))
    return Shared(
        models / row.model, row, model_queries.evaluations(view, row.checkpoint), repositories, repository
    )


def write_shared(shared: Shared, out: Path) -> None:
    """Write a checkpoint as a folder for other programs, complete or not at all.

    Args:
        shared: the checkpoint.
        out: the folder to make.

    Raises:
        SharingError: the folder exists already.
        CheckpointError: the checkpoint is missing or damaged, or the disk refused.
        ModelError: an adapter's base cannot be loaded.
    """
    if out.exists():
        raise SharingError(f"{out} is there already: name a folder that is not, nothing is overwritten")
    Chain(shared.chain).read(shared.row.checkpoint, verify=True)
    with writing(str(out), "Make room, or name another folder"), folder_written_whole(out) as beside:
        if (shared.folder / ADAPTER).is_file() and shared.format != "peft":
            _merge(shared.folder, beside)
        else:
            shutil.copytree(shared.folder, beside, ignore=shutil.ignore_patterns(*_STAY), dirs_exist_ok=True)
        if shared.format == "peft":
            _name_base(shared, beside)
        if shared.format == "sentence-transformers":
            _write_modules(beside, shared.row.config)
        (beside / "README.md").write_text(card(shared), encoding="utf-8")


def _merge(adapter: Path, out: Path) -> None:
    """Write a retriever's adapter and its base as one encoder."""
    from peft import PeftModel

    from pipeline.models.libraries import load_tokenizer, quiet_libraries
    from pipeline.models.retriever.encoder import load_encoder

    base = base_of(adapter)
    with quiet_libraries():
        adapted: Any = PeftModel.from_pretrained(load_encoder(base), str(adapter))
        adapted.merge_and_unload().save_pretrained(str(out))
        load_tokenizer(base).save_pretrained(out)


def _name_base(shared: Shared, out: Path) -> None:
    """Name the base by the chain's beginning: a name of the hub, or a folder's own."""
    path = out / ADAPTER
    config = json.loads(path.read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = _public(shared.row.base)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _write_modules(out: Path, config: Mapping[str, Any]) -> None:
    """Write sentence-transformers' description of an encoder: it pools as in training, and makes unit vectors."""
    known = json.loads((out / "config.json").read_text(encoding="utf-8"))
    pooling = known.get("retriever_pooling", "mean")
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    files: dict[str, Any] = {
        "modules.json": [
            {
                "idx": number,
                "name": str(number),
                "path": path,
                "type": f"sentence_transformers.models.{kind}",
            }
            for number, (path, kind) in enumerate(modules)
        ],
        # The longest text in its training: a state. Premises were cut at max_seq_len.
        "sentence_bert_config.json": {
            "max_seq_length": int(config["data_max_seq_len"]),
            "do_lower_case": False,
        },
        "config_sentence_transformers.json": {"similarity_fn_name": "cosine", "prompts": {}},
        "1_Pooling/config.json": {
            "word_embedding_dimension": int(known.get("hidden_size") or known["d_model"]),
            "pooling_mode_mean_tokens": pooling == "mean",
            "pooling_mode_cls_token": pooling == "cls",
            "pooling_mode_lasttoken": pooling == "last",
        },
    }
    for name, content in files.items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    (out / "2_Normalize").mkdir()


def card(shared: Shared) -> str:
    """Return a checkpoint's model card, with the hub's metadata above it."""
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

    row = shared.row
    task, ours = _TASKS[row.model]
    module, load = _LOAD[row.model, shared.format]
    tests = [
        one
        for one in shared.evaluations
        if one.split.rpartition("/")[2] == "test" and shared.repository in (None, one.repository)
    ]
    results = [
        EvalResult(
            task_type=task,
            task_name=ours,
            dataset_type=one.repository or "several",
            dataset_name=task_name(one.repository, one.split),
            dataset_revision=one.dataset,
            metric_type=metric,
            metric_value=value,
        )
        for one in tests
        for metric, value in baselines_of(one.metrics)[""].items()
        if not metric.endswith(BOUNDS)
    ]
    data = ModelCardData(
        library_name=shared.format,
        pipeline_tag=task,
        base_model=None if Path(row.base).is_absolute() else row.base,
        tags=["lean4", "theorem-proving", "everlean"],
        model_name=f"everlean {row.model} {row.checkpoint}",
        eval_results=results or None,
    )
    rows = [(one, who, metrics) for one in tests for who, metrics in baselines_of(one.metrics).items()]
    names = [name for name in rows[0][2] if not name.endswith(BOUNDS)] if rows else []
    # Of a repository's adapter the checkpoint's steps may be another's.
    made = f"{row.steps} steps in {row.seconds:.0f} s; weights {row.weights}."
    settings = {**row.config, "seed": row.seed, "device": row.device, **row.versions}
    written = ModelCard.from_template(
        data,
        template_path=str(_CARD),
        title=data.model_name,
        task=ours,
        base=_public(row.base),
        learned=shared.learned,
        sides=_SIDES[row.config["split"]],
        metrics=names,
        measured=[
            [
                task_name(one.repository, one.split),
                one.n,
                BASELINES[who] if who else "this model",
                *(_figure(metrics, name) for name in names),
            ]
            for one, who, metrics in rows
        ],
        module=module,
        load=load,
        made=made
        if shared.repository is None
        else f"The adapter {begun(shared.folder)} of the checkpoint's.",
        settings=_public(settings),
    )
    return str(written)


def _figure(metrics: Mapping[str, float], name: str) -> str:
    if name not in metrics:
        return ""
    low, high = metrics.get(f"{name}_low"), metrics.get(f"{name}_high")
    bounds = "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"
    return f"{metrics[name]:.3f}{bounds}"


def _public(value: Any) -> Any:
    """Return a value; of a path of this machine, also in a mapping, only its last part."""
    if isinstance(value, Mapping):
        return {name: _public(one) for name, one in value.items()}
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value
