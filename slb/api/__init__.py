"""The aiohttp application: registration, routes, status, metrics. One file an endpoint."""
