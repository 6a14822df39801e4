r"""What is read of a blueprint: leanblueprint's LaTeX and verso-blueprint's Lean."""

from __future__ import annotations

import time

import pytest

from store.domain.blueprint import LONGEST_NAME, MOST_STATEMENTS, Statement, read_latex, read_verso

CONTENT = r"""
\begin{definition}[A size]\label{def:size} \lean{Demo.size,
   Demo.Size} \leanok
  A size. % \uses{def:not_this}, \lean{Not.this}
\end{definition}
\begin{theorem}
  \label{thm:main}\uses{def:size}
  \begin{equation}\label{eq:inside} 1 = 1 \end{equation}
\end{theorem}
\begin{proof}\leanok \uses{lem:small , lem:other}\end{proof}
\begin{lemma}\label{lem:small}\lean{Demo.small} 100\% sure \end{lemma}
\begin{remark}\label{rem:none}\uses{def:size}\end{remark}
"""


def test_a_statement_has_its_labels_its_declarations_and_what_it_and_its_proof_use() -> None:
    assert read_latex([("blueprint/src/content.tex", CONTENT)]) == [
        Statement(["def:size"], ["Demo.size", "Demo.Size"], []),
        Statement(["thm:main"], [], ["def:size", "lem:small", "lem:other"]),
        Statement(["lem:small"], ["Demo.small"], []),
    ]


def test_a_proof_elsewhere_names_what_it_proves() -> None:
    files = [
        ("a.tex", r"\begin{lemma}\label{one}\end{lemma}\begin{lemma}\label{two}\end{lemma}"),
        ("b.tex", r"\begin{proof}\proves{one}\uses{two}\end{proof}\begin{proof}\uses{lost}\end{proof}"),
    ]
    assert [one.uses for one in read_latex(files)] == [["two"], []]


def test_a_project_names_its_environments() -> None:
    web = r"\usepackage[showmore, dep_graph, thms=dfn+lem]{blueprint}"
    text = r"\begin{lem}\label{a}\end{lem}\begin{theorem}\label{b}\end{theorem}"
    assert [one.labels for one in read_latex([("web.tex", web), ("content.tex", text)])] == [["a"]]


VERSO = """
#doc (Manual) "Sizes" =>

:::definition "size" (lean := "Demo.size, Demo.Size")
A size.
:::

:::theorem "main" (parent := "core")
  (uses := "size")
It says {uses "small"}[] and {bpref "size"}[].
:::

:::proof "main" (uses := "other")
Text.
:::
Not of it: {uses "size"}[].

```lean "small"
theorem small : True := trivial
private theorem helper : True := trivial
```

:::author "ada" (name := "Ada")
:::
"""


def test_a_verso_blueprint_is_read_by_its_directives_and_its_code() -> None:
    assert read_verso([("Demo/Blueprint.lean", VERSO)]) == [
        Statement(["size"], ["Demo.size", "Demo.Size"], []),
        Statement(["main"], [], ["size", "small", "other"]),
        Statement(["small"], ["small", "helper"], []),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "\\begin{theorem}" * 100_000,
        "\\end{theorem}" * 100_000,
        "\\begin{theorem}\\label{" + "x" * 200_000,
        "\\begin{theorem}\\label{" + "x" * 200_000 + "}\\uses{" + "y," * 100_000 + "}\\end{theorem}",
        "\\usepackage[" + "thms=" * 20_000,
        ':::theorem "a" ' + '(uses := "b") ' * 50_000,
        '```lean "a"\n' * 50_000,
        "theorem " * 100_000,
        ":" * 300_000 + "\n" * 100_000,
        "\\proves{a}\\uses{b}\\lean{c}\\label{d}",
    ],
)
def test_whatever_a_repository_writes_is_read_in_bounded_time_and_number(text: str) -> None:
    began = time.process_time()
    found = [*read_latex([("a.tex", text)]), *read_verso([("a.lean", text)])]
    assert time.process_time() - began < 3
    assert len(found) <= 2 * MOST_STATEMENTS
    assert all(len(name) <= LONGEST_NAME for one in found for name in (*one.labels, *one.lean, *one.uses))
