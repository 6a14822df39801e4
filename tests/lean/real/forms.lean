/-! Forms in which people write a sorry. `tests/lean/test_forms.py` says which are searched, and that the proofs of all
that are found compile together. -/

theorem t_term (p : Prop) (h : p) : p := sorry

theorem t_by_line (p : Prop) (h : p) : p := by sorry

theorem t_by_nl (p : Prop) (h : p) : p := by
  sorry

theorem t_exact (p : Prop) (h : p) : p := by
  exact sorry

theorem t_refine1 (p q : Prop) (h : p) (k : q) : p ∧ q := by
  refine ⟨sorry, ?_⟩
  exact k

theorem t_refine2 (p q : Prop) (h : p) (k : q) : p ∧ q := by
  refine ⟨sorry, sorry⟩

theorem t_seqfocus (p q : Prop) (h : p) (k : q) : p ∧ q := by
  constructor <;> sorry

theorem t_bullet1 (p q : Prop) (h : p) (k : q) : p ∧ q := by
  constructor
  · sorry
  · exact k

theorem t_bullet2 (p q : Prop) (h : p) (k : q) : p ∧ q := by
  constructor
  · sorry
  · sorry

theorem t_sorry_then (p : Prop) (h : p) : p := by
  sorry <;> trivial

theorem t_have_term (p q : Prop) (h : p) (f : p → q) : q := by
  have h2 : p := sorry
  exact f h2

theorem t_have_by (p q : Prop) (h : p) (f : p → q) : q := by
  have h2 : p := by sorry
  exact f h2

theorem t_have_nl (p q : Prop) (h : p) (f : p → q) : q := by
  have : p := by
    sorry
  exact f this

theorem t_have_in_term (p q : Prop) (h : p) (f : p → q) : q :=
  have h2 : p := sorry
  f h2

theorem t_calc_term (a b c : Nat) (h : a = b) (k : b = c) : a = c :=
  calc a = b := h
    _ = c := sorry

theorem t_calc_by (a b c : Nat) (h : a = b) (k : b = c) : a = c := by
  calc a = b := by sorry
    _ = c := by sorry

theorem t_match (n : Nat) : n = n :=
  match n with
  | 0 => sorry
  | n + 1 => sorry

theorem t_patterns : (n : Nat) → n = n
  | 0 => rfl
  | n + 1 => sorry

theorem t_induction (n : Nat) : n = n := by
  induction n with
  | zero => rfl
  | succ n ih => sorry

theorem t_where (p : Prop) (h : p) : p := aux h
where
  aux (k : p) : p := sorry

theorem t_where_by (p : Prop) (h : p) : p := by
  exact aux h
where
  aux (k : p) : p := by
    sorry

mutual
theorem t_mutual1 (p : Prop) (h : p) : p := by
  sorry
theorem t_mutual2 (p : Prop) (h : p) : p := by
  sorry
end

class HasP (p : Prop) : Prop where
  out : p
instance t_instance : HasP True := ⟨sorry⟩

instance t_instance_where (p : Prop) : HasP (p → p) where
  out := by
    sorry

private theorem t_private (p : Prop) (h : p) : p := by
  sorry

namespace Pr
protected theorem t_protected (p : Prop) (h : p) : p := by
  sorry
end Pr

namespace A.B
namespace C
theorem t_namespace (p : Prop) (h : p) : p := by
  sorry
end C
end A.B

section
variable (p : Prop) (h : p)
include h
theorem t_section_var : p := by
  sorry
end

theorem t_three (p q r : Prop) (h : p) (k : q) (l : r) : p ∧ q ∧ r := by
  have a : p := by sorry
  have b : q := sorry
  exact ⟨a, b, sorry⟩

theorem t_αβ₁ (ρ σ : Prop) (hρ : ρ) (hσ : ρ → σ) : σ := by
  have ηé : ρ := by sorry
  exact hσ ηé

theorem «t quoted name» (p : Prop) (h : p) : p := by
  sorry

theorem t_long (p0 : Prop) (h0 : p0) (p1 : Prop) (h1 : p1) (p2 : Prop) (h2 : p2) (p3 : Prop) (h3 : p3) (p4 : Prop) (h4 : p4) (p5 : Prop) (h5 : p5) (p6 : Prop) (h6 : p6) (p7 : Prop) (h7 : p7) (p8 : Prop) (h8 : p8) (p9 : Prop) (h9 : p9) (p10 : Prop) (h10 : p10) (p11 : Prop) (h11 : p11) (p12 : Prop) (h12 : p12) (p13 : Prop) (h13 : p13) (p14 : Prop) (h14 : p14) (p15 : Prop) (h15 : p15) (p16 : Prop) (h16 : p16) (p17 : Prop) (h17 : p17) (p18 : Prop) (h18 : p18) (p19 : Prop) (h19 : p19) (p20 : Prop) (h20 : p20) (p21 : Prop) (h21 : p21) (p22 : Prop) (h22 : p22) (p23 : Prop) (h23 : p23) (p24 : Prop) (h24 : p24) (p25 : Prop) (h25 : p25) (p26 : Prop) (h26 : p26) (p27 : Prop) (h27 : p27) (p28 : Prop) (h28 : p28) (p29 : Prop) (h29 : p29) (p30 : Prop) (h30 : p30) (p31 : Prop) (h31 : p31) (p32 : Prop) (h32 : p32) (p33 : Prop) (h33 : p33) (p34 : Prop) (h34 : p34) (p35 : Prop) (h35 : p35) (p36 : Prop) (h36 : p36) (p37 : Prop) (h37 : p37) (p38 : Prop) (h38 : p38) (p39 : Prop) (h39 : p39) (p40 : Prop) (h40 : p40) (p41 : Prop) (h41 : p41) (p42 : Prop) (h42 : p42) (p43 : Prop) (h43 : p43) (p44 : Prop) (h44 : p44) (p45 : Prop) (h45 : p45) (p46 : Prop) (h46 : p46) (p47 : Prop) (h47 : p47) (p48 : Prop) (h48 : p48) (p49 : Prop) (h49 : p49) (p50 : Prop) (h50 : p50) (p51 : Prop) (h51 : p51) (p52 : Prop) (h52 : p52) (p53 : Prop) (h53 : p53) (p54 : Prop) (h54 : p54) (p55 : Prop) (h55 : p55) (p56 : Prop) (h56 : p56) (p57 : Prop) (h57 : p57) (p58 : Prop) (h58 : p58) (p59 : Prop) (h59 : p59) : p59 := by
  sorry

open Nat in
theorem t_open_in (n : Nat) : n = n := by
  sorry

set_option maxRecDepth 1000 in
/-- Has a sorry. -/
@[simp]
theorem t_setopt_in (n : Nat) : n + 0 = n := by
  sorry

noncomputable section
theorem t_noncomp (p : Prop) (h : p) : p := sorry
end

theorem t_anon_ctor (p q : Prop) (h : p) (k : q) : p ∧ q := ⟨sorry, k⟩

theorem t_comment_after (p : Prop) (h : p) : p := by
  sorry -- TODO: prove
  -- and more

theorem t_comment_block_after (p : Prop) (h : p) : p := by
  sorry /- TODO -/

theorem t_comment_before (p : Prop) (h : p) : p := by -- hard
  -- think
  sorry

theorem t_braces (p : Prop) (h : p) : p := by { sorry }

theorem t_paren (p : Prop) (h : p) : p := by
  (sorry)

theorem t_fun (p : Prop) : p → p := fun h => sorry

theorem t_fun_by (p : Prop) : p → p := fun h => by sorry

theorem t_show_from (p : Prop) (h : p) : p := show p from sorry

theorem t_show_tac (p : Prop) (h : p) : p := by
  show p
  sorry

theorem t_semicolon (p : Prop) : p → p := by
  intro h; sorry

theorem t_semicolon2 (p q : Prop) (h : p) (k : q) : p ∧ q := by
  constructor; sorry; exact k

theorem t_first (p : Prop) (h : p) : p := by
  first | sorry | exact h

theorem t_try (p : Prop) (h : p) : p := by
  try sorry

theorem t_case (p q : Prop) (h : p) (k : q) : p ∧ q := by
  constructor
  case left => sorry
  case right => exact k

theorem t_next (p q : Prop) (h : p) (k : q) : p ∧ q := by
  constructor
  next => sorry
  next => sorry

theorem t_cases_with (p q : Prop) (h : p ∨ q) (f : p → q) : q := by
  cases h with
  | inl h => sorry
  | inr h => sorry

theorem t_obtain (p q : Prop) (h : p ∧ q) : q := by
  obtain ⟨a, b⟩ := h
  sorry

theorem t_suffices_by (p q : Prop) (h : p) (f : p → q) : q := by
  suffices k : p by exact f k
  sorry

theorem t_suffices_from (p q : Prop) (h : p) (f : p → q) : q :=
  suffices k : p from f k
  sorry

example (p : Prop) (h : p) : p := by
  sorry

namespace Zz
theorem _root_.t_root (p : Prop) (h : p) : p := by
  sorry
end Zz

universe u
theorem t_universe {α : Type u} (a : α) : a = a := by
  sorry

/-- This says sorry: `by sorry`. -/
theorem t_doc (p : Prop) (h : p) : p := sorry

theorem t_one (p : Prop) (h : p) : p := sorry theorem t_two (p : Prop) (h : p) : p := sorry

theorem t_admit (p : Prop) (h : p) : p := by
  admit

theorem t_stop (p q : Prop) (h : p) (k : q) : p ∧ q := by
  constructor
  · exact h
  stop
  exact nonsense

theorem t_done_after (p : Prop) (h : p) : p := by
  skip
  sorry
  done

theorem t_all_goals (p q : Prop) (h : p) (k : q) : p ∧ q := by
  constructor
  all_goals sorry

theorem t_ascribe (p : Prop) (h : p) : p := (sorry : p)

theorem t_arg (p q : Prop) (h : p) (f : p → q) : q := f sorry

theorem t_arg_by (p q : Prop) (h : p) (f : p → q) : q := f (by sorry)

theorem t_apply_arg (p q : Prop) (h : p) (f : p → q) : q := by
  apply f sorry

theorem t_rw_show (a b : Nat) (h : a = b) : b = a := by
  rw [show a = b from sorry]

theorem t_have_pattern (p q : Prop) (h : p) (k : q) : q := by
  have ⟨x, y⟩ : p ∧ q := sorry
  exact y

theorem t_exists_both : ∃ n : Nat, n = n := ⟨sorry, sorry⟩

theorem t_exists_by : ∃ n : Nat, n = 3 := by
  sorry

theorem t_let_data : ∃ n : Nat, n = n := by
  let x : Nat := sorry
  exact ⟨x, rfl⟩

def t_def_prop : 1 = 1 := sorry

def t_number : Nat := sorry

instance t_data : Inhabited Nat := ⟨sorry⟩

section
variable {α : Type} [i : HasP True]
omit i in
theorem t_omit (a : α) : a = a := by
  sorry
end

theorem t_uparams.{v} {α : Type v} (a : α) : a = a := by
  sorry

theorem t_by_exact_by (p : Prop) (h : p) : p := by exact by sorry

theorem t_recursion : (n : Nat) → 0 + n = n
  | 0 => rfl
  | n + 1 => by
    sorry

structure Pair (p q : Prop) : Prop where
  l : p
  r : q
theorem t_struct_inst (p q : Prop) (h : p) (k : q) : Pair p q where
  l := sorry
  r := by sorry

theorem t_struct_braces (p q : Prop) (h : p) (k : q) : Pair p q := { l := sorry, r := k }

theorem t_pipe (p q : Prop) (h : p) (f : p → q) : q := f <| sorry

theorem t_forall : ∀ (n : Nat), n = n := by
  intro n
  sorry

theorem t_indent4 (p : Prop) (h : p)
    : p
    := by
        sorry

theorem t_letrec (p : Prop) (h : p) : p := by
  let rec go (n : Nat) : p := sorry
  exact go 0

theorem t_letrec_by (p : Prop) (h : p) : p :=
  let rec go : Nat → p
    | 0 => h
    | n + 1 => by
      sorry
  go 3

theorem t_term_by (n : Nat) : n = n := by
  cases n with
  | zero => rfl
  | succ n => sorry
termination_by n

theorem t_where_term (p : Prop) (h : p) : p := go 3
where
  go : Nat → p
    | 0 => h
    | n + 1 => sorry
  termination_by n => n

theorem t_where2 (p q : Prop) (h : p) (k : q) : p ∧ q := ⟨l, r⟩
where
  l : p := sorry
  r : q := by sorry

theorem t_dite (p : Prop) (h : p) : p := if k : 1 = 1 then sorry else sorry

theorem t_fun_match : (n : Nat) → n = n := fun
  | 0 => sorry
  | n + 1 => sorry

theorem t_match_h (n : Nat) : n = n := by
  match h : n with
  | 0 => sorry
  | k + 1 => sorry

theorem t_any (p q : Prop) (h : p) (k : q) : p ∧ q := by
  constructor
  any_goals sorry

theorem t_exacts (p q : Prop) (h : p) (k : q) : p ∧ q := by
  constructor
  exact sorry
  exact k

theorem t_two_rows (p q : Prop) (h : p) (k : q) : p ∧ q := by
  constructor; sorry; sorry

theorem t_dot_tight (p q : Prop) (h : p) (k : q) : p ∧ q := by
  constructor
  ·sorry
  · exact k

theorem t_have_semi (p q : Prop) (h : p) (f : p → q) : q := by
  have a : p := by { sorry }; exact f a

theorem t_anon_by (p q : Prop) (h : p) (k : q) : p ∧ q := ⟨by sorry, by sorry⟩

theorem t_nested (p q r : Prop) (h : p) (k : q) (l : r) : p ∧ q ∧ r := by
  refine ⟨?_, ?_, ?_⟩
  · sorry
  · have b : q := by
      sorry
    exact b
  · sorry

theorem t_calc_first (a b c : Nat) (h : a = b) (k : b = c) : a = c := calc
  a = b := sorry
  _ = c := by
    sorry

theorem t_show_term (p : Prop) (h : p) : p := by
  show p; exact (by sorry)

theorem t_paren_seq (p : Prop) (h : p) : p := by
  (skip; sorry)

theorem t_intro_lambda (p q : Prop) : p → q → p := fun h _ => by
  exact by
    sorry

mutual
theorem t_mut1 (p : Prop) (h : p) : p := by sorry
theorem t_mut2 (p q : Prop) (h : p) (k : q) : p ∧ q := ⟨sorry, sorry⟩
end

theorem t_generalized (p : Prop) (h : p) : p := by
  revert h
  sorry

theorem t_cases_dot (p q : Prop) (h : p ∨ q) (f : p → q) : q := by
  cases h
  case inl h => sorry
  case inr h => exact sorry

theorem t_on_line : True ∧ True := ⟨by sorry, sorry⟩

theorem t_have_chain (p q r : Prop) (f : p → q) (g : q → r) (h : p) : r := by
  have a : q := by
    apply f
    sorry
  have : r := g a
  exact this

theorem t_suff (p q : Prop) (h : p) (f : p → q) : q := by
  suffices p from f this
  sorry

theorem t_pipe_by (p q : Prop) (h : p) (f : p → q) : q := f <| by
  sorry

theorem t_exists_data : ∃ n : Nat, n = 3 := ⟨3, sorry⟩

theorem t_iff (p : Prop) : p ↔ p := ⟨fun h => sorry, by sorry⟩

theorem t_long_type
    (p q : Prop)
    (h : p ∧ q) :
    q ∧ p :=
  And.intro
    (by
      sorry)
    (sorry)
