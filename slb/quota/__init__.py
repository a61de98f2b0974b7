"""The quota router: which caller may call which model now, and how long the others wait."""
