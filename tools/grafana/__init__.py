"""Dashboards for Grafana, out of the metrics that slb declares."""
