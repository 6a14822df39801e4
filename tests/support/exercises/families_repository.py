"""Repositories to learn from: a library that several share, one of their own, and solved theorems that cite both.

A repository speaks of every relation by a name of its own, which a definition gives; its theorems say those names, its
lemmas what they stand for. So the names in a goal decide which lemmas it needs, and which ones they decide is learned
from proofs: the words themselves say nothing. What one repository teaches is no help with the next. The libraries' own
proofs are by `tauto`, which Lean has from Mathlib; the simulator has it without.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.support.exercises.relations import WORDS, Chain, Library, lemma_chain

SHARED = "Shared"
TOOLCHAIN = "leanprover/lean4:v4.21.0"
_VARIABLES = "abcdefgpqrstuvwxyz"
_MOST_VARIABLES = 6
_PLACES = tuple(map(str, range(40)))
_DRAWS = 200
"""How often a theorem is drawn anew before the libraries count as used up."""
_SYLLABLES = tuple(a + b for a in "bdfgklmnprstvz" for b in "aeiou")


@dataclass(frozen=True, slots=True)
class RepositorySize:
    """How much a repository has.

    `relations` and `lemmas` of its own, which come again with every revision; `shared_relations` and `shared_lemmas` in
    the library that all share; `theorems` of each revision, `per_file` in a file at most, each by so many lemmas as
    `difficulties` says in turn.
    """

    theorems: int = 160
    per_file: int = 100
    shared_relations: int = 6
    shared_lemmas: int = 20
    relations: int = 4
    lemmas: int = 20
    difficulties: tuple[int, ...] = (1, 1, 2)


@dataclass(frozen=True, slots=True)
class _Volume:
    """What a revision adds theorems about: a private library on the shared one, and what the repository calls each
    relation of both. `letters` are what it calls propositions."""

    number: int
    common: Library
    library: Library
    called: Mapping[str, str]
    letters: Sequence[str]

    @classmethod
    def draw(
        cls, rng: random.Random, number: int, common: Library, size: RepositorySize, taken: set[str]
    ) -> _Volume:
        words = _words(rng, 2 * size.relations + size.shared_relations, taken)
        library = Library.generate(
            rng.randrange(1 << 30),
            relations=size.relations,
            lemmas=size.lemmas,
            words=words[: size.relations],
            base=common,
        )
        called = dict(zip(library.meanings, words[size.relations :], strict=True))
        return cls(number, common, library, called, rng.sample(_VARIABLES, _MOST_VARIABLES))


def revisions(
    seed: int, name: str, *, shared: int = 0, size: RepositorySize | None = None
) -> Iterator[dict[str, str]]:
    """Yield a repository's files by path, commit after commit, without end: each adds a library and theorems.

    Args:
        seed: decides all of it but the shared library.
        name: of the repository, its folder and its namespace; a capital letter and letters.
        shared: the seed of the shared library, which is the same in all repositories of one such seed and size.
        size: of each revision; by default `RepositorySize()`.

    Raises:
        ValueError: the name is no name, or the libraries have not so many different theorems of these difficulties.
    """
    size = size or RepositorySize()
    if not (name.isascii() and name.isalnum() and name[0].isupper()) or name == SHARED:
        raise ValueError(f"name is {name!r}: it takes a capital letter and letters, and is not {SHARED}")
    common = Library.generate(shared, relations=size.shared_relations, lemmas=size.shared_lemmas)
    files = {
        "lean-toolchain": f"{TOOLCHAIN}\n",
        "lakefile.toml": f'name = "{name.lower()}"\ndefaultTargets = ["{name}"]\n\n'
        f'[[lean_lib]]\nname = "{SHARED}"\n\n[[lean_lib]]\nname = "{name}"\nglobs = ["{name}.+"]\n',
        f"{SHARED}.lean": common.source(),
    }
    taken = set(WORDS)
    for number in itertools.count(1):
        rng = random.Random(f"repository/{seed}/{name}/{number}")
        volume = _Volume.draw(rng, number, common, size, taken)
        files = {**files, **_files(name, volume, list(_theorems(rng, name, volume, size)), size.per_file)}
        yield files


def _theorems(rng: random.Random, name: str, volume: _Volume, size: RepositorySize) -> Iterator[str]:
    """Yield the texts of a revision's theorems, no two of which state the same."""
    pools = (volume.common.lemmas, volume.library.lemmas)
    seen: set[str] = set()
    for index in range(size.theorems):
        difficulty = size.difficulties[index // 2 % len(size.difficulties)]
        # Where one lemma is enough, the libraries take turns; a longer chain goes through both.
        lemmas = pools[index % 2] if difficulty == 1 else (*pools[0], *pools[1])
        for _ in range(_DRAWS):
            drawn = lemma_chain(lemmas, rng, difficulty, _PLACES)
            if drawn is None or drawn.goal in drawn.hypotheses or len(_places(drawn)) > _MOST_VARIABLES:
                continue
            stated, proof = _written(drawn, volume.called, rng.sample(volume.letters, _MOST_VARIABLES))
            if stated not in seen:
                break
        else:
            raise ValueError(
                f"theorems is {size.theorems}: {name} has only about {index} different ones of difficulties "
                f"{size.difficulties}; ask for fewer, for more lemmas or for higher difficulties"
            )
        seen.add(stated)
        yield f"theorem t{volume.number}_{index} {stated} := by\n{proof}"


def _places(chain: Chain) -> list[str]:
    """Return the propositions that a chain speaks of, in order of appearance."""
    return list(dict.fromkeys(place for said in (*chain.hypotheses, chain.goal) for place in said[1:]))


def _written(chain: Chain, called: Mapping[str, str], letters: Sequence[str]) -> tuple[str, str]:
    """Return a chain's statement and tactic block, in the repository's names and with these propositions."""
    props = dict(zip(_places(chain), letters, strict=False))

    def said(one: tuple[str, str, str]) -> str:
        return f"{called[one[0]]} {props[one[1]]} {props[one[2]]}"

    binders = " ".join(f"(h{at} : {said(one)})" for at, one in enumerate(chain.hypotheses, start=1))
    lines = []
    for number, step in enumerate(chain.steps, start=1):
        application = " ".join(
            [step.lemma.name, *(props[place] for place in step.variables), *step.arguments]
        )
        last = number == len(chain.steps)
        lines.append(f"  exact {application}\n" if last else f"  have s{number} := {application}\n")
    return f"({' '.join(sorted(props.values()))} : Prop) {binders} : {said(chain.goal)}", "".join(lines)


def _files(name: str, volume: _Volume, theorems: Sequence[str], per_file: int) -> dict[str, str]:
    """Return the files that a revision adds."""
    suffix = "" if volume.number == 1 else str(volume.number)
    library, names = f"{name}.Library{suffix}", f"{name}.Names{suffix}"
    definitions = "\n".join(
        f"def {own} (p q : Prop) : Prop :=\n  {relation} p q\n" for relation, own in volume.called.items()
    )
    texts = {
        library: _inside(name, SHARED, volume.library.source()),
        # Outside the namespace: what a theorem's goal says is then as short as in the text.
        names: f"import {library}\n\nopen {name}\n\n{definitions}",
    }
    for number, start in enumerate(range(0, len(theorems), per_file), start=1):
        text = "\n".join(theorems[start : start + per_file])
        texts[f"{name}.Solved{volume.number}_{number}"] = _inside(name, names, text)
    return {f"{module.replace('.', '/')}.lean": text for module, text in texts.items()}


def _inside(namespace: str, imported: str, text: str) -> str:
    return f"import {imported}\n\nnamespace {namespace}\n\n{text}\nend {namespace}\n"


def _words(rng: random.Random, count: int, taken: set[str]) -> list[str]:
    """Return words of two syllables that are not taken, and take them."""
    found: list[str] = []
    while len(found) < count:
        word = "".join(rng.choices(_SYLLABLES, k=2)).capitalize()
        if word not in taken:
            taken.add(word)
            found.append(word)
    return found
