"""Tests of slb."""
