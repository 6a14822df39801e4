from __future__ import annotations

from pipeline.lean.source.scanner import parse
from pipeline.lean.source.splice import Declaration
from store.domain.identity import git_blob


def cut(text: str, keyword: str) -> Declaration:
    source = parse(text.encode())
    command = next(command for command in source.commands if command.keyword == keyword)
    data = text.encode()
    return Declaration.cut(data, source, command)


def test_a_declaration_is_framed_by_its_scopes() -> None:
    text = "namespace N\nvariable (p : Prop)\n\ntheorem t : p := sorry\n\nend N\n"
    assert cut(text, "theorem").framed() == "namespace N\nvariable (p : Prop)\ntheorem t : p := sorry\n"


def test_the_frame_keeps_the_column_of_the_first_line() -> None:
    text = "namespace N\n  theorem t : p := by\n    sorry\nend N\n"
    assert "\n  theorem t" in cut(text, "theorem").framed()


def test_an_example_becomes_a_theorem_for_distil_and_keeps_its_rest() -> None:
    text = "/-- an example of example -/\nexample (p : Prop) : p := sorry -- example\n"
    framed = cut(text, "example").framed_for_distil()
    assert "theorem everlean_example_0 (p : Prop) : p := sorry" in framed
    assert framed.count("everlean_example") == 1


def test_a_theorem_that_mentions_example_keeps_its_text() -> None:
    text = "theorem t : example_of p := sorry\n"
    assert cut(text, "theorem").framed_for_distil() == text


def test_the_blob_id_is_git_s() -> None:
    assert git_blob(b"hello\n", like="0" * 40) == "ce013625030ba8dba906f756967f9e9ca394464a"
    assert len(git_blob(b"hello\n", like="0" * 64)) == 64
