"""Tests against a real Valkey server."""
