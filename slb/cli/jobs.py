"""`slb jobs`: what the job dispatcher's users type."""

import base64
import secrets

import typer

from slb.setting_values import SIGNING_PREFIX

_BYTES = 24


def secret() -> None:
    """Print a new secret for the setting jobs_callback_secrets."""
    typer.echo(SIGNING_PREFIX + base64.b64encode(secrets.token_bytes(_BYTES)).decode())
