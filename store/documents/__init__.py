"""Documents: what readers are told of each thing, made of the view's rows in one place each."""
