"""A Fisher information that two processes estimate together, by gloo."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pipeline.models.retriever.fisher import squared_gradients
from tests.support import programs

pytestmark = pytest.mark.timeout(300)


# A real process that joins the other by gloo through a file and takes every other group.
PROGRAM = """
import sys
import torch
from torch import distributed, nn
from safetensors.torch import load_file, save_file
from pipeline.models.retriever.fisher import merge_over_processes, squared_gradients

folder, rank, world = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
given = load_file(f"{folder}/given")
model = nn.Linear(3, 1)
model.load_state_dict({"weight": given["weight"], "bias": given["bias"]})
groups = list(zip(given["inputs"].split(4), given["targets"].split(4)))[rank::world]
distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world)
part = merge_over_processes(
    squared_gradients(model, groups, lambda model, rows: (model(rows[0]) - rows[1]).square().squeeze(1))
)
save_file({**part.sums, "examples": torch.tensor(part.examples)}, f"{folder}/{rank}")
distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_find_what_one_finds_and_both_have_it(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    model = nn.Linear(3, 1)
    inputs, targets = torch.randn(20, 3, generator=generator), torch.randn(20, 1, generator=generator)
    save_file({**model.state_dict(), "inputs": inputs, "targets": targets}, tmp_path / "given")

    def losses(model: nn.Module, rows: tuple[Tensor, Tensor]) -> Tensor:
        each: Tensor = (model(rows[0]) - rows[1]).square()
        return each.squeeze(1)

    alone = squared_gradients(model, [(inputs, targets)], losses)
    started = [
        programs.start(PROGRAM, tmp_path, rank, 2, folder=tmp_path / f"said by {rank}") for rank in range(2)
    ]
    for program in started:
        done = program.wait()
        assert done.returncode == 0, done.stderr
    both = [load_file(tmp_path / str(rank)) for rank in range(2)]
    for found in both:
        assert int(found.pop("examples")) == alone.examples == 20
        torch.testing.assert_close(found, alone.sums)
    assert all(torch.equal(both[0][name], both[1][name]) for name in alone.sums)
