"""The words that Lean and its usual libraries begin commands with. Data only; grow the lists here."""

from __future__ import annotations

import re
from collections.abc import Iterable


def words(text: str) -> frozenset[str]:
    """A set of the words of a text, which reads better than forty quoted strings."""
    return frozenset(text.split())


RESERVED_DECLARATIONS = words("theorem def abbrev instance example structure class inductive axiom opaque")
RESERVED_SCOPES = words("namespace section end mutual variable universe")
LIBRARY_DECLARATIONS = words(
    "lemma coinductive irreducible_def alias initialize builtin_initialize simproc dsimproc simproc_decl "
    "builtin_simproc unif_hint proof_wanted theorem_wanted def_wanted instance_wanted"
)
DECLARATIONS = RESERVED_DECLARATIONS | LIBRARY_DECLARATIONS
CORE = RESERVED_DECLARATIONS | RESERVED_SCOPES
"""Reserved by Lean itself: they begin a command wherever they stand."""
OTHERS = words(
    "open set_option attribute include omit export universes variables variable? variable! "
    "macro macro_rules elab elab_rules syntax notation notation3 infix infixl infixr prefix postfix "
    "declare_syntax_cat deriving add_decl_doc library_note unseal seal run_cmd run_elab run_meta run_tac "
    "suppress_compilation unsuppress_compilation register_option register_builtin_option register_label_attr "
    "register_simp_attr register_parser_alias declare_config_elab declare_command_config_elab "
    "declare_aesop_rule_sets declare_bitwise_int_theorems declare_simp_like_tactic "
    "initialize_simps_projections grind_pattern gen_injective_theorems% tactic_extension "
    "deprecated_module assert_not_exists assert_not_imported assert_no_cyclic count_heartbeats "
    "recommended_spelling binder_predicate compile_inductive compile_def extend_docs blueprint_comment import"
)
KEYWORDS = CORE | DECLARATIONS | OTHERS
MODIFIERS = words("private protected public noncomputable computable partial unsafe nonrec local scoped meta")
CONTINUATIONS = words(
    "where with termination_by decreasing_by by then else from at calc finally using have let show suffices "
    "obtain exact refine apply intro intros rw simp simpa induction cases rcases match fun do if for return "
    "all_goals any_goals first try repeat case next constructor use linarith nlinarith omega norm_num ring "
    "field_simp positivity decide rfl sorry admit trivial assumption contradiction exfalso unfold change conv "
    "set extends ext funext congr aesop grind gcongr push_neg by_contra by_cases rintro rename_i subst split "
    "left right"
)
"""What goes on with a command though it may stand at column 0 after an empty line."""
HAS_FIELDS = words("structure class inductive coinductive") | {"class inductive"}
TAKES_DOC = words("blueprint_comment library_note")
"""Commands with a doc comment as their argument."""


def alternatives(choices: Iterable[str]) -> str:
    """A regex for exactly these words that looks at every letter once, unlike `a|b|c`."""
    tails: dict[str, list[str]] = {}
    ends = False
    for choice in sorted(choices):
        if choice:
            tails.setdefault(choice[0], []).append(choice[1:])
        else:
            ends = True
    if not tails:
        return ""
    branches = [re.escape(letter) + alternatives(rest) for letter, rest in tails.items()]
    body = branches[0] if len(branches) == 1 and not ends else f"(?:{'|'.join(branches)})"
    return f"{body}?" if ends else body
