"""Builders, doubles and stand-ins for the tests. The product never imports this package."""
