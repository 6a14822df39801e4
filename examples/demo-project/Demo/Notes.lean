/-!
Names and strings that contain the word; a scanner that counts words finds sorrys here, and there are none.
-/

namespace Demo.Notes

def motto : String := "a sorry is a promise, -- not a proof"

theorem sorry_free (p : Prop) : p → p := fun h => h

theorem «sorry» (p : Prop) (h : p) : p := h

theorem not_sorry : True := trivial -- := sorry

end Demo.Notes
