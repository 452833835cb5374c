"""Conformance suites: what every component of a kind must hold to, as plain test classes."""
