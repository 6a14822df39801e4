"""One daemon's folders as any process meets them: paths, the lock, who answers on the control socket, its log lines."""
