"""Watch remotes: when each is polled, what it says, and the events that follow."""
