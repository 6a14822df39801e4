"""Documents: the facts of each thing for readers, made of the view's rows in one place each."""
