"""Chromium, under the names that it is installed by."""

import shutil

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def installed() -> str | None:
    """Its path; None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)
