/-! What the kernel computes by name is what the library defines under this name: each function's equations, proved
for all arguments, where the kernel has only the definition to go by. -/

open Nat

example (n : Nat) : Nat.add n zero = n := rfl
example (n m : Nat) : Nat.add n (succ m) = succ (Nat.add n m) := rfl

example (n : Nat) : Nat.sub n zero = n := rfl
example (n m : Nat) : Nat.sub n (succ m) = pred (Nat.sub n m) := rfl
example : pred zero = zero := rfl
example (n : Nat) : pred (succ n) = n := rfl

example (n : Nat) : Nat.mul n zero = zero := rfl
example (n m : Nat) : Nat.mul n (succ m) = Nat.add (Nat.mul n m) n := rfl

example (n : Nat) : Nat.pow n zero = succ zero := rfl
example (n m : Nat) : Nat.pow n (succ m) = Nat.mul (Nat.pow n m) n := rfl

example : Nat.beq zero zero = true := rfl
example (n : Nat) : Nat.beq zero (succ n) = false := rfl
example (n : Nat) : Nat.beq (succ n) zero = false := rfl
example (n m : Nat) : Nat.beq (succ n) (succ m) = Nat.beq n m := rfl

example : Nat.ble zero zero = true := rfl
example (n : Nat) : Nat.ble zero (succ n) = true := rfl
example (n : Nat) : Nat.ble (succ n) zero = false := rfl
example (n m : Nat) : Nat.ble (succ n) (succ m) = Nat.ble n m := rfl

example (n m : Nat) : Nat.div n m = if 0 < m ∧ m ≤ n then succ (Nat.div (Nat.sub n m) m) else zero := Nat.div_eq n m
example (n m : Nat) : Nat.mod n m = Nat.sub n (Nat.mul m (Nat.div n m)) := rfl

example (n m : Nat) : Nat.gcd n m = gcdFuel n n m := rfl
example (k m : Nat) : gcdFuel (succ k) zero m = m := rfl
example (k n m : Nat) : gcdFuel (succ k) (succ n) m = gcdFuel k (m % succ n) (succ n) := rfl

example (n : Nat) : Nat.log2 n = log2Fuel n n := rfl
example (k n : Nat) : log2Fuel (succ k) n = if 2 ≤ n then log2Fuel k (n / 2) + 1 else 0 := rfl

example (n m : Nat) : Nat.shiftLeft n m = n * 2 ^ m := rfl
example (n m : Nat) : Nat.shiftRight n m = n / 2 ^ m := rfl

example (n m : Nat) : Nat.land n m = bitsFuel (fun a b => a && b) (n + m) n m := rfl
example (n m : Nat) : Nat.lor n m = bitsFuel (fun a b => a || b) (n + m) n m := rfl
example (n m : Nat) : Nat.xor n m = bitsFuel (fun a b => cond a (!b) b) (n + m) n m := rfl
example (f : Bool → Bool → Bool) (k n m : Nat) : bitsFuel f (succ k) n m =
    2 * bitsFuel f k (n / 2) (m / 2) + cond (f (n % 2 == 1) (m % 2 == 1)) 1 0 := rfl
example (f : Bool → Bool → Bool) (n m : Nat) : bitsFuel f zero n m = zero := rfl
