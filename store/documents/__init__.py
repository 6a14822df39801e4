"""Documents: what readers are told of a repository or a sorry, made of the view's rows in one place each."""
