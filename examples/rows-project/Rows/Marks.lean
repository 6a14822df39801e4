/-! Rows of marks, each set or not: definitions, and the lemmas that everything else rests on. -/

namespace Marks

def set : List Bool → Nat
  | [] => 0
  | true :: ms => set ms + 1
  | false :: ms => set ms

def unset : List Bool → Nat
  | [] => 0
  | true :: ms => unset ms
  | false :: ms => unset ms + 1

def flip : List Bool → List Bool
  | [] => []
  | m :: ms => not m :: flip ms

def last : List Bool → List Bool
  | [] => []
  | m :: ms => last ms ++ [m]

def pair : List Bool → List Bool
  | [] => []
  | m :: ms => m :: m :: pair ms

def run (m : Bool) : Nat → List Bool
  | 0 => []
  | n + 1 => m :: run m n

theorem set_append (ms ns : List Bool) : set (ms ++ ns) = set ms + set ns := by
  induction ms with
  | nil => simp [set]
  | cons m ms ih => cases m <;> simp [set, ih, Nat.add_assoc, Nat.add_comm 1]

theorem unset_append (ms ns : List Bool) : unset (ms ++ ns) = unset ms + unset ns := by
  induction ms with
  | nil => simp [unset]
  | cons m ms ih => cases m <;> simp [unset, ih, Nat.add_assoc, Nat.add_comm 1]

theorem flip_append (ms ns : List Bool) : flip (ms ++ ns) = flip ms ++ flip ns := by
  induction ms with
  | nil => simp [flip]
  | cons m ms ih => simp [flip, ih]

theorem last_append (ms ns : List Bool) : last (ms ++ ns) = last ns ++ last ms := by
  induction ms with
  | nil => simp [last]
  | cons m ms ih => simp [last, ih, List.append_assoc]

theorem pair_append (ms ns : List Bool) : pair (ms ++ ns) = pair ms ++ pair ns := by
  induction ms with
  | nil => simp [pair]
  | cons m ms ih => simp [pair, ih]

theorem flip_flip (ms : List Bool) : flip (flip ms) = ms := by
  induction ms with
  | nil => rfl
  | cons m ms ih => cases m <;> simp [flip, ih] <;> rfl

theorem set_flip (ms : List Bool) : set (flip ms) = unset ms := by
  induction ms with
  | nil => rfl
  | cons m ms ih => cases m <;> simp [flip, not, set, unset, ih]

theorem unset_flip (ms : List Bool) : unset (flip ms) = set ms := by
  induction ms with
  | nil => rfl
  | cons m ms ih => cases m <;> simp [flip, not, set, unset, ih]

theorem set_last (ms : List Bool) : set (last ms) = set ms := by
  induction ms with
  | nil => rfl
  | cons m ms ih => cases m <;> simp [last, set, set_append, ih]

theorem last_last (ms : List Bool) : last (last ms) = ms := by
  induction ms with
  | nil => rfl
  | cons m ms ih => simp [last, last_append, ih]

theorem flip_last (ms : List Bool) : flip (last ms) = last (flip ms) := by
  induction ms with
  | nil => rfl
  | cons m ms ih => simp [last, flip, flip_append, ih]

theorem set_pair (ms : List Bool) : set (pair ms) = set ms + set ms := by
  induction ms with
  | nil => rfl
  | cons m ms ih => cases m <;> simp [pair, set, ih, Nat.add_assoc, Nat.add_left_comm]

theorem flip_pair (ms : List Bool) : flip (pair ms) = pair (flip ms) := by
  induction ms with
  | nil => rfl
  | cons m ms ih => simp [pair, flip, ih]

theorem flip_run (m : Bool) (n : Nat) : flip (run m n) = run (not m) n := by
  induction n with
  | zero => rfl
  | succ n ih => simp [run, flip, ih]

theorem set_run (n : Nat) : set (run true n) = n := by
  induction n with
  | zero => rfl
  | succ n ih => simp [run, set, ih]

theorem unset_run (n : Nat) : unset (run false n) = n := by
  induction n with
  | zero => rfl
  | succ n ih => simp [run, unset, ih]

end Marks
