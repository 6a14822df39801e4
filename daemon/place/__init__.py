"""One daemon's folders for any process: paths, the lock, the control socket's clients, its log lines."""
