"""Servers of which one falls ill, before several proxies."""
