"""Breaks the code on purpose, one small change at a time, and sees whether a test fails: `make mutants`."""
