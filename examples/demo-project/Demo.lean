import Demo.Logic
import Demo.Implication
import Demo.Negation
import Demo.Quantifiers
import Demo.Arithmetic
import Demo.Open
import Demo.Notes
