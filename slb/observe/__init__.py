"""What is told about slb: metrics, logs."""
