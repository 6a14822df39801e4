"""Agents of other people: what they claim and submit, and the server that gives them sorries."""
