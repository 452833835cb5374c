"""Agents that come with the core. They are registered like any plugin's."""
