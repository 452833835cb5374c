"""Environments in processes of their own and behind servers."""
