"""Watch remotes: the polls' schedule, the remotes' answers, and the resulting events."""
